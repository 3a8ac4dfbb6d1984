//# flags: -O2
//# link: -pie | -no-pie -s
//# with: sse_pieces.S ../include/lab.S
//# shared: 2
/* 128-bit and scalar vector loads and stores, aligned, unaligned, partial, non-temporal, and MMX. */
#include "zoo.h"

int main(void) {
    arena_begin(65536);
    zoo_run(1);
    return case_result();
}
