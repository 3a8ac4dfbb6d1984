//# flags: -O2
//# link: -pie | -no-pie -s
//# with: x87_pieces.S ../include/lab.S
//# shared: 2
/* x87 loads and stores of every format, and the environment, state and save-area instructions. */
#include "zoo_main.h"
