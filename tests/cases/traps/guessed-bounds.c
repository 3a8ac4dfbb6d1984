//# flags: -O2
//# link: -pie | -no-pie | -no-pie -s
//# with: guessed_bounds_tables.S
/* Jump tables whose size cannot be read off a comparison in front of the jump: bounds in another block, by masks, by the width of
 * the index, by another register, tables that touch each other and constants that continue them plausibly. */
#include "arena.h"

extern uint64_t bound_elsewhere(uint64_t, uint64_t), by_mask(uint64_t, uint64_t), by_width(uint64_t, uint64_t),
    by_shift(uint64_t, uint64_t), neighbours(uint64_t, uint64_t), inverse(uint64_t, uint64_t), trusted(uint64_t, uint64_t);

int main(void) {
    uint64_t a = 3;
    for (uint64_t n = 0; n < 300; n++) {
        a = bound_elsewhere(n % 11, a), mix(a);
        a = by_mask(n, a), mix(a);
        a = by_width(n % 4, a), mix(a);
        a = by_shift(n << 56, a), mix(a);
        a = neighbours(n % 5, a), mix(a);
        a = inverse(n % 9, a), mix(a);
        a = trusted(n % 3, a), mix(a);
    }
    report("guessed bounds");
    return 0;
}
