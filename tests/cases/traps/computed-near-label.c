//# flags: -O0 | -O2 | -O2 -fno-asynchronous-unwind-tables
//# link: -pie | -no-pie -s
/* Jumps computed from a label into the instructions right behind it, one to five bytes away: a springboard of five bytes at the label
 * would cover them, and the jump would run pieces of its displacement. The same with a return for the jump, and with slides of
 * instructions behind a function's entry, whose address is taken in another function. */
#include "arena.h"

/* Enters behind n instructions of SIZE bytes. */
#define SLIDE(NAME, SIZE, ONE)                                        \
    __attribute__((noinline)) static uint64_t NAME(uint64_t n) {      \
        uint64_t result = 3, target;                                  \
        __asm__ volatile("lea 1f(%%rip), %1\n"                        \
                         "lea (%1,%2," SIZE "), %1\n"                 \
                         "xor %%ecx, %%ecx\n"                         \
                         "jmp *%1\n"                                  \
                         "1: " ONE ONE ONE ONE ONE ONE ONE            \
                         "adc %%rcx, %0\n"                            \
                         : "+r"(result), "=&r"(target)                \
                         : "r"(n)                                     \
                         : "rcx", "memory", "cc");                    \
        return result;                                                \
    }
SLIDE(one, "1", "cmc\n")
SLIDE(two, "2", "inc %%ecx\n")
SLIDE(four, "4", "lea 1(%%ecx), %%ecx\n")

/* A return to an address that was just pushed. */
__attribute__((noinline)) static uint64_t pushed(uint64_t n) {
    uint64_t result = 0, target;
    __asm__ volatile("lea -128(%%rsp), %%rsp\n"
                     "lea 1f(%%rip), %1\n"
                     "lea (%1,%2,2), %1\n"
                     "push %1\n"
                     "ret\n"
                     "1: inc %k0\n inc %k0\n inc %k0\n inc %k0\n inc %k0\n inc %k0\n"
                     "lea 128(%%rsp), %%rsp\n"
                     : "+a"(result), "=&r"(target)
                     : "r"(n)
                     : "memory", "cc");
    return result;
}

/* Both a function that is called through pointers and the base of computed jumps. */
uint64_t entered(uint64_t n), enter_behind(uint64_t n, uint64_t skipped);
__asm__(".text\n.type entered, @function\n.globl entered\nentered: .cfi_startproc\n"
        " inc %edi\n inc %edi\n inc %edi\n inc %edi\n lea 100(%rdi), %rax\n ret\n"
        ".cfi_endproc\n.size entered, .-entered\n"
        ".type enter_behind, @function\n.globl enter_behind\nenter_behind: .cfi_startproc\n"
        " lea entered(%rip), %rax\n lea (%rax,%rsi,2), %rax\n jmp *%rax\n"
        ".cfi_endproc\n.size enter_behind, .-enter_behind\n");

int main(void) {
    uint64_t (*volatile pointer)(uint64_t) = entered;
    for (uint64_t n = 0; n < 7; n++)
        printf("%llu %llu %llu %llu %llu %llu\n", (unsigned long long)one(n), (unsigned long long)two(n),
               (unsigned long long)four(n), (unsigned long long)pushed(n % 6), (unsigned long long)enter_behind(n, n % 5),
               (unsigned long long)pointer(n));
    for (uint64_t n = 0; n < 500; n++)
        mix(one(n % 8) + two(n % 8) + four(n % 8) + pushed(n % 7) + enter_behind(n, n % 5) + pointer(n));
    report("computed near a label");
    return 0;
}
