//# flags: -O0 | -O2
//# link: -pie | -no-pie
//# signal: SIGSEGV
/* A store through a null pointer's element, which compilers turn into a constant address (z3): where it leads to, the original has nothing, and a
 * rewritten program its tags. */
#include "arena.h"

int main(void) {
    puts("before");
    fflush(stdout);
    __asm__ volatile("movabs %%rax, 0x7fffffff8" ::: "memory");
    puts("after");
    return 0;
}
