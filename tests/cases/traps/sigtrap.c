//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
/* The program's own use of SIGTRAP: breakpoints it executes, raise(), ignoring it. */
#include "arena.h"
#include <signal.h>

static volatile int hits;
static void hit(int n) { hits += n == SIGTRAP; }

int main(void) {
    signal(SIGTRAP, hit);
    for (int i = 0; i < 5; i++)
        __asm__ volatile("int3" : : : "memory");
    printf("%d after int3\n", hits);
    raise(SIGTRAP);
    printf("%d after raise\n", hits);
    signal(SIGTRAP, SIG_IGN);
    raise(SIGTRAP);
    puts("ignored");
    return 0;
}
