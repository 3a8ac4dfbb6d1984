//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
//# refuse-guard: an operand with %gs
/* Forms of operands with %gs, whose base the program has set. */
#include <asm/prctl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    static uint64_t segment[8] = {5, 6, 7, 8, 9, 10, 11, 12};
    uint64_t a, d;
    syscall(SYS_arch_prctl, ARCH_SET_GS, segment);
    __asm__ volatile("mov %%gs:8, %0\n mov %%gs:(%2), %1\n add %1, %%gs:16\n" : "=&r"(a), "=&r"(d) : "r"(24ul) : "memory");
    printf("%lu %lu %lu\n", (unsigned long)a, (unsigned long)d, (unsigned long)segment[2]);
    return 0;
}
