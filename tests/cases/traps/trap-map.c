//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
/* Jumps to old code addresses that no analysis can foresee: computed by arithmetic, in a loop; each one is led to the
 * new code by the trap map. */
#include "arena.h"

__attribute__((noinline)) static uint64_t computed(uint64_t n) {
    uint64_t result = n;
    void *target;
    __asm__ volatile("lea 1f+0x200000(%%rip), %1\n"
                     "lea -0x200000(%1,%2,4), %1\n"
                     "jmp *%1\n"
                     ".balign 16\n"
                     "1: add $1, %0\n"
                     "   add $2, %0\n"
                     "   add $4, %0\n"
                     "   add $8, %0\n"
                     "   add $16, %0\n"
                     : "+r"(result), "=&r"(target) : "r"(n % 4) : "memory", "cc");
    return result;
}

int main(void) {
    for (uint64_t n = 0; n < 200; n++)
        mix(computed(n));
    printf("%llu %llu %llu %llu\n", (unsigned long long)computed(0), (unsigned long long)computed(1), (unsigned long long)computed(2),
           (unsigned long long)computed(3));
    report("computed jumps");
    return 0;
}
