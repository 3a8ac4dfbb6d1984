//# flags: -O1 | -O2
//# nodes: 2 3 4
/* One check covers several accesses. All nodes write to their own words of the same blocks, and between a word of one block and the
 * next word of it they write to another block: the miss there may give the first block away, and a store that relies on its check
 * would be lost. The same with a fault in the middle: the handler, which polls, returns to where the check still seems to count. */
#include <blizzard.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#define ROUNDS 600
#define MOST 8

struct block {
    volatile long w[MOST];
} __attribute__((aligned(64)));

/* By node: the words of a block that it counts in. Each has two, which lie in one half. */
__attribute__((noinline)) static void interleaved(volatile long *a, volatile long *b, volatile long *c) {
    a[0] += 1;
    b[0] += 2;
    a[1] += 3;
    c[0] += 4;
    b[1] += 5;
    a[0] += 6;
    c[1] += 7;
}

/* A check before the branch, accesses in both arms and behind them. */
__attribute__((noinline)) static void branching(volatile long *a, volatile long *b, long odd) {
    a[0] += 1;
    if (odd)
        b[0] += 1, a[0] += 2;
    else
        b[1] += 1, a[0] += 3;
    a[0] += 4;
    b[0] += 1;
}

static volatile char *page;
static volatile long spin;
static int faults;

static void on_fault(int signal) {
    (void)signal;
    faults++;
    mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
    /* The loop polls: others take what they want. */
    for (int i = 0; i < 1000; i++)
        spin++;
}

__attribute__((noinline)) static void faulting(volatile long *a, volatile char *p) {
    a[0] += 1;
    *p = 1;
    a[1] += 1;
}

int main(void) {
    unsigned me = bz_node(), nodes = bz_nodes();
    struct block *all = 0;
    if (me == 0) bz_publish(0, bz_alloc(4 * sizeof *all));
    all = bz_lookup(0);
    unsigned at = 2 * (me % 4);
    volatile long *a = &all[0].w[at], *b = &all[1].w[at], *c = &all[2].w[at], *d = &all[3].w[at];
    for (long i = 0; i < ROUNDS; i++) {
        if (i % 3 == 0) interleaved(a, b, c);
        if (i % 3 == 1) interleaved(c, a, b);
        if (i % 3 == 2) interleaved(b, c, a);
    }
    bz_barrier();
    long n = ROUNDS / 3;
    long right[] = {7 * n + 2 * n + 4 * n, 3 * n + 5 * n + 7 * n};
    int wrong = 0;
    for (int k = 0; k < 3; k++)
        for (unsigned j = 0; j < 2; j++)
            wrong += all[k].w[at + j] != right[j];
    bz_barrier();
    for (int k = 0; k < 2; k++)
        all[k].w[at] = all[k].w[at + 1] = 0;
    bz_barrier();
    for (long i = 0; i < ROUNDS; i++)
        branching(a, b, i & 1);
    bz_barrier();
    long half = ROUNDS / 2;
    wrong += a[0] != 5 * ROUNDS + 2 * half + 3 * half;
    wrong += b[0] != ROUNDS + half || b[1] != half;
    bz_barrier();
    page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, 0);
    for (long i = 0; i < 60; i++) {
        mprotect((void *)page, 4096, PROT_READ);
        faulting(d, page);
    }
    bz_barrier();
    wrong += d[0] != 60 || d[1] != 60 || faults != 60;
    long sum = bz_reduce_sum_u64(wrong);
    if (me == 0) printf("%ld wrong\n", sum);
    (void)nodes;
    return 0;
}
