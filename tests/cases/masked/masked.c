//# flags: -O2
//# link: -pie | -no-pie -s
//# with: masked_pieces.S ../include/lab.S
//# needs-cpu: avx2
//# shared: 2
/* vmaskmov, vpmaskmov and maskmovdqu: lanes that are masked out are not accessed, also where no memory is. */
#include "zoo.h"

extern void masked_at_hole(void);

int main(void) {
    arena_begin(65536);
    zoo_run(1);
    /* Operands that end in unmapped memory, with the lanes there masked out. */
    unsigned char *hole = (unsigned char *)mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole + 4096, 4096);
    memset(hole, 0x33, 4096);
    struct lab in, out;
    lab_fill(&in, 1, CF | OF);
    in.r[RDI] = (uint64_t)hole + 4096 - 16;
    in.r[RSI] = (uint64_t)ARENA;
    lab_run(masked_at_hole, &in, &out);
    EXPECT((out.flags & STATUS) == (CF | OF), "flags changed");
    mix_bytes(hole, 4096);
    mix_bytes(ARENA, 32);
    report("lanes over a hole");
    return case_result();
}
