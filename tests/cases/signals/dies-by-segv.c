//# flags: -O0 | -O2
//# link: -pie | -no-pie
//# signal: SIGSEGV
/* A program that dies by SIGSEGV dies by it after the rewrite too, with what it printed before. */
#include "arena.h"

int main(int argc, char **argv) {
    puts("before");
    fflush(stdout);
    *(volatile int *)(uintptr_t)(argc * 64) = 1;
    puts("after");
    return 0;
}
