//# flags: -O2
//# link: -pie | -no-pie -s
//# with: avx_pieces.S ../include/lab.S
//# needs-cpu: avx2 fma f16c
//# shared: 2
/* 256-bit and VEX-encoded loads and stores. */
#include "zoo_main.h"
