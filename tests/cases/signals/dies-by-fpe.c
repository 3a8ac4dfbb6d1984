//# flags: -O0 | -O2
//# link: -pie | -no-pie
//# signal: SIGFPE
/* A program that dies by SIGFPE dies by it after the rewrite too, with what it printed before. */
#include "arena.h"

int main(int argc, char **argv) {
    puts("before");
    fflush(stdout);
    volatile int zero = argc - 1; printf("%d", argc / zero);
    puts("after");
    return 0;
}
