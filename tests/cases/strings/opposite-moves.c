//# uses: blizzard
//# flags: -O2 -fno-tree-loop-distribute-patterns
//# link: -pie
//# compilers: gcc
//# nodes: 2 4
/* Nodes that move between the same blocks in opposite directions: each needs both blocks at once and takes them from the others.
 * Every string instruction must come to its end, and each word must hold a value that some node wrote whole. */
#include "blizzard.h"
#include <stdint.h>
#include <stdio.h>

enum { WORDS = 24, ROUNDS = 600 };

static void move(volatile uint64_t *to, volatile uint64_t *from, uint64_t n) {
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static uint64_t compare(volatile uint64_t *a, volatile uint64_t *b, uint64_t n) {
    __asm__ volatile("repe cmpsq" : "+D"(a), "+S"(b), "+c"(n) : : "memory", "cc");
    return n;
}

int main(void) {
    unsigned node = bz_node(), nodes = bz_nodes();
    uint64_t *area;
    if (node == 0) {
        area = bz_alloc(2 * WORDS * 8 + 64);
        bz_publish(0, area);
    } else {
        area = bz_lookup(0);
    }
    /* Off the block's start, so that the operands straddle blocks differently. */
    volatile uint64_t *a = area + 3, *b = area + 3 + WORDS + 2;
    if (node == 0)
        for (int i = 0; i < WORDS; i++) a[i] = b[i] = 0x0101010101010101u * (i + 1);
    bz_barrier();
    uint64_t spins = 0;
    for (int r = 0; r < ROUNDS; r++) {
        if ((node + r) % 2) move(a, b, WORDS);
        else move(b, a, WORDS);
        spins += compare(a, b, WORDS);
    }
    bz_barrier();
    int wrong = 0;
    for (int i = 0; i < WORDS; i++) wrong += a[i] != 0x0101010101010101u * (i + 1) || b[i] != a[i];
    uint64_t total = bz_reduce_sum_u64(wrong + (spins == 0 ? 0 : 1));
    if (node == 0) printf("wrong words %lu\n", (unsigned long)total);
    (void)nodes;
    return total != 0;
}
