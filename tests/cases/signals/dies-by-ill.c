//# flags: -O0 | -O2
//# link: -pie | -no-pie
//# signal: SIGILL
/* A program that dies by SIGILL dies by it after the rewrite too, with what it printed before. */
#include "arena.h"

int main(int argc, char **argv) {
    puts("before");
    fflush(stdout);
    if (argc) __builtin_trap();
    puts("after");
    return 0;
}
