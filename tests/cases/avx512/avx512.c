//# flags: -O2
//# link: -pie | -no-pie -s
//# with: avx512_pieces.S ../include/lab.S
//# needs-cpu: avx512f avx512bw avx512dq avx512vl avx512cd
//# shared: 2
/* 64-byte loads and stores, masks (merging, zeroing, broadcast, compress and expand), gathers and scatters. */
#include "zoo_main.h"
