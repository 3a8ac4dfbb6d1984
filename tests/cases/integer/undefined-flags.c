//# compilers: gcc
//# flags: -O2
//# link: -pie | -no-pie -s
//# with: undefined_flags.S
/* Flags that manuals call undefined behind an instruction, and processors leave as they were: what a check in front of it leaves must not be seen there. */
#include "arena.h"

/* Flags behind the instruction, where those in front of it were these. */
extern uint64_t behind_div(uint64_t flags, uint64_t *), behind_idiv(uint64_t flags, uint64_t *), behind_bsf(uint64_t flags, uint64_t *),
    behind_bsr(uint64_t flags, uint64_t *), behind_bt(uint64_t flags, uint64_t *), behind_btc(uint64_t flags, uint64_t *);

int main(void) {
    enum { STATUS = 0x8d5 };
    uint64_t word = 48;
    for (uint64_t flags = 0; flags < 0x1000; flags += 1)
        if (!(flags & ~(uint64_t)STATUS))
            printf("%llx: %llx %llx %llx %llx %llx %llx\n", (unsigned long long)flags,
                   (unsigned long long)behind_div(flags, &word) & STATUS, (unsigned long long)behind_idiv(flags, &word) & STATUS,
                   (unsigned long long)behind_bsf(flags, &word) & STATUS, (unsigned long long)behind_bsr(flags, &word) & STATUS,
                   (unsigned long long)behind_bt(flags, &word) & STATUS, (unsigned long long)behind_btc(flags, &word) & STATUS);
    return 0;
}
