//# compilers: gcc
//# flags: -O2
//# link: -pie | -no-pie -s
//# with: undefined_flags.S
//# shared: 2
/* Flags that manuals call undefined behind an instruction, and processors leave as they were: what a check in front of it leaves must not be seen there. */
#include "arena.h"

/* Flags behind the instruction, where those in front of it were these. */
extern uint64_t behind_mul(uint64_t flags, uint64_t *), behind_imul(uint64_t flags, uint64_t *), behind_product(uint64_t flags, uint64_t *),
    behind_multiple(uint64_t flags, uint64_t *), behind_div(uint64_t flags, uint64_t *), behind_idiv(uint64_t flags, uint64_t *),
    behind_bsf(uint64_t flags, uint64_t *), behind_bsr(uint64_t flags, uint64_t *), behind_bt(uint64_t flags, uint64_t *),
    behind_btc(uint64_t flags, uint64_t *);

static uint64_t (*const instructions[])(uint64_t flags, uint64_t *) = {behind_mul, behind_imul, behind_product, behind_multiple, behind_div,
                                                                       behind_idiv, behind_bsf, behind_bsr, behind_bt, behind_btc};

int main(void) {
    enum { STATUS = 0x8d5 };
    arena_begin(64);
    uint64_t *word = (uint64_t *)ARENA;
    *word = 48;
    for (uint64_t flags = 0; flags < 0x1000; flags += 1) {
        if (flags & ~(uint64_t)STATUS)
            continue;
        printf("%llx:", (unsigned long long)flags);
        for (unsigned k = 0; k < sizeof instructions / sizeof *instructions; k++)
            printf(" %llx", (unsigned long long)instructions[k](flags, word) & STATUS);
        printf("\n");
    }
    arena_end();
    return 0;
}
