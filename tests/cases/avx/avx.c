//# flags: -O2
//# link: -pie | -no-pie -s
//# with: avx_pieces.S ../include/lab.S
//# needs-cpu: avx2 fma f16c
//# shared: 2
/* 256-bit and VEX-encoded loads and stores. */
#include "zoo.h"

int main(void) {
    arena_begin(65536);
    zoo_run(1);
    return case_result();
}
