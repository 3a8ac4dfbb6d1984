//# flags: -O2 | -O3 -fcf-protection=full
//# link: -pie | -no-pie
//# library: tail-calls_library.c
//# nodes: 2 3
/* Cycles without a loop: tail calls through a pointer, through a register, through the PLT and between libraries, recursion through pointers.
 * Such edges were taken for ways out of the program, so that nothing polled and the node never saw the store that ends the cycle. Node 0 also
 * measures how long its store waits for the others' copies. The least of all rounds, of which there are more while all are late, must stay under a
 * millisecond. */
#include "blizzard.h"
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

typedef volatile unsigned Flag;
void there(Flag *flag, unsigned round);
void back(Flag *flag, unsigned round) {
    if (*flag != round) {
        there(flag, round);
    }
}

typedef void (*Step)(Flag *, unsigned);
static Step volatile next;
static Step volatile steps[2];
__attribute__((noinline)) static void by_memory(Flag *flag, unsigned round) {
    if (*flag != round) {
        next(flag, round);
    }
}
__attribute__((noinline)) static void by_register(Flag *flag, unsigned round) {
    unsigned seen = *flag;
    if (seen != round) {
        steps[seen & 1](flag, round);
    }
}
/* Calls itself through a pointer, without a loop, and returns: a tree of calls with 2^20 leaves at a time. */
typedef unsigned (*Tree)(Flag *, unsigned, unsigned);
static Tree volatile tree;
__attribute__((noinline)) static unsigned recursive(Flag *flag, unsigned round, unsigned depth) {
    if (*flag == round) {
        return 1;
    }
    return depth == 0 ? 0 : tree(flag, round, depth - 1) || tree(flag, round, depth - 1);
}
static void by_recursion(Flag *flag, unsigned round) {
    while (!recursive(flag, round, 20)) {
    }
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int main(void) {
    enum { ROUNDS = 3, MOST_ROUNDS = 100, LIMIT_NS = 1000000 };
    next = by_memory;
    steps[0] = steps[1] = by_register;
    tree = recursive;
    if (bz_node() == 0) {
        bz_publish(0, bz_alloc(64));
    }
    Flag *flag = bz_lookup(0);
    const Step kinds[] = {back, by_memory, by_register, by_recursion};
    const char *names[] = {"through the PLT", "through memory", "through a register", "recursion"};
    unsigned round = 0;
    for (unsigned kind = 0; kind < 4; kind++) {
        uint64_t least = UINT64_MAX;
        for (unsigned k = 0; k < ROUNDS || (k < MOST_ROUNDS && least >= LIMIT_NS); k++) {
            round++;
            unsigned seen = *flag; /* every node has a copy */
            bz_barrier();
            if (bz_node() == 0) {
                usleep(1000);
                uint64_t begin = now_ns();
                *flag = round;
                uint64_t took = now_ns() - begin;
                least = took < least ? took : least;
            } else if (seen != round) {
                kinds[kind](flag, round);
            }
            least = bz_reduce_min_u64(least);
        }
        if (bz_node() == 0) {
            printf("%s: %s\n", names[kind], least < LIMIT_NS ? "answered in time" : "late");
        }
    }
    return 0;
}
