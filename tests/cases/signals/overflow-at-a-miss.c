//# flags: -O0 | -O2
//# link: -pie | -static
//# nodes: 2 3
/* A recursion that reads a block of another node at each level runs over the stack's limit; the handler, on an alternate stack, leaves it by siglongjmp.
 * The runtime works on the program's stack, and needs more of it than a frame of the program: so it is the runtime that comes to the
 * limit, in the middle of a miss. The program must go on all the same. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { BLOCKS = 16384, LEAST = 512 * 1024 };
static volatile unsigned long *blocks;
static sigjmp_buf back;
static volatile unsigned long levels, overflows;

static void leave(int number) {
    overflows++;
    siglongjmp(back, number);
}

__attribute__((noinline)) static unsigned long endless(unsigned long level) {
    volatile char frame[200];
    frame[level % sizeof frame] = (char)blocks[level % BLOCKS * 8];
    levels = level;
    const unsigned long below = endless(level + 1);
    return below + (unsigned char)frame[level * 7 % sizeof frame];
}

int main(void) {
    static char stack[64 * 1024];
    const unsigned node = bz_node(), nodes = bz_nodes();
    unsigned long wrong = 0;
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = LEAST;
    setrlimit(RLIMIT_STACK, &limit);
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_flags = SA_ONSTACK};
    action.sa_handler = leave;
    sigaltstack(&alternate, 0);
    sigaction(SIGSEGV, &action, 0);
    if (node == 0) bz_publish(0, bz_alloc(BLOCKS * 64));
    blocks = bz_lookup(0);
    for (unsigned round = 0; round < 2 * nodes; round++) {
        if (node == round % nodes)
            for (unsigned i = 0; i < BLOCKS; i++) blocks[i * 8] = round + i;
        bz_barrier();
        if (node == (round + 1) % nodes) {
            if (sigsetjmp(back, 1) == 0) endless(0);
            wrong += levels < 100;
        }
        bz_barrier();
        for (unsigned i = 0; i < BLOCKS; i++) wrong += blocks[i * 8] != round + i;
        bz_barrier();
    }
    wrong += overflows != 2;
    wrong = bz_reduce_sum_u64(wrong);
    if (node == 0) printf("wrong %lu\n", wrong);
    return wrong != 0;
}
