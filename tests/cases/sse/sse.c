//# flags: -O2
//# link: -pie | -no-pie -s
//# with: sse_pieces.S ../include/lab.S
//# shared: 2
/* 128-bit and scalar vector loads and stores, aligned, unaligned, partial, non-temporal, and MMX. */
#include "zoo_main.h"
