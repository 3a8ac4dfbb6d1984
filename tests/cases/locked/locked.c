//# flags: -O2
//# link: -pie | -no-pie -s
//# with: locked_pieces.S ../include/lab.S
//# shared: 2
/* Every instruction that may carry a lock prefix, and those that lock without one. */
#include "zoo_main.h"
