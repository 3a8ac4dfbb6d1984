//# flags: -O0 | -O2
//# link: -pie | -no-pie
//# signal: SIGABRT
/* A program that dies by SIGABRT dies by it after the rewrite too, with what it printed before. */
#include "arena.h"

int main(int argc, char **argv) {
    puts("before");
    fflush(stdout);
    if (argc) abort();
    puts("after");
    return 0;
}
