//# flags: -O2
//# link: -pie | -no-pie -s
//# with: gather_pieces.S ../include/lab.S
//# needs-cpu: avx2
//# shared: 2
/* Gathers with every index and element size, scale and mask; the index vectors reach many blocks and pages. */
#include "zoo.h"

int main(void) {
    arena_begin(65536);
    for (int i = 0; i < 65536 - 64; i++)
        if (i < 3500 || i > 16384)
            ARENA[i] = (unsigned char)(i * 31 ^ i >> 6);
    zoo_run(1);
    return case_result();
}
