//# flags: -O2
//# link: -pie
//# nodes: 2 3 4
/* BZ_PROTOCOL_UPDATE: what it promises, and one thing that it does not. Node 0 is the home of most of it. */
#include <unistd.h>

#include "check.h"

enum { WORDS = 1200, ROUNDS = 20, EACH = 200 };

static uint64_t *of_home(unsigned home, uint32_t block_bytes, unsigned slot) {
    bz_attr_t update = {.block_bytes = block_bytes, .homes = BZ_HOMES_NODE, .node = home, .protocol = BZ_PROTOCOL_UPDATE};
    if (bz_node() == 0)
        bz_publish(slot, bz_alloc_with(&update, WORDS * 8));
    return bz_lookup(slot);
}

/* Counters do not flush. */
static uint64_t add(bz_counter_t *counter, uint64_t v) { return bz_counter_op(counter, BZ_ADD, v, 0); }

/* The home stores, all read: told by a counter behind bz_unlock, bz_flush or bz_publish, and then by a barrier. */
static void one_writer(volatile uint64_t *at, bz_counter_t *told, bz_lock_t *lock, unsigned home) {
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        if (node == home) {
            if (round % 3 == 0)
                bz_lock(lock);
            for (unsigned w = round % 2; w < WORDS; w += 1 + round % 5)
                at[w] = round << 32 | w;
            if (round % 3 == 0) {
                bz_unlock(lock);
                add(told, 1);
            } else if (round % 3 == 1) {
                bz_flush();
                add(told, 1);
            } else {
                bz_publish(900, (void *)at);
                add(told, 1);
            }
        }
        while (add(told, 0) < round) {}
        for (unsigned w = round % 2; w < WORDS; w += 1 + round % 5)
            CHECK(at[w] == (round << 32 | w));
        bz_barrier();
    }
}

int main(void) {
    const unsigned me = node = bz_node(), nodes = bz_nodes();
    bz_lock_t *lock = 0;
    if (me == 0)
        bz_publish(1, bz_lock_new());
    lock = bz_lookup(1);
    if (me == 0)
        for (unsigned k = 0; k < 5; k++)
            bz_publish(10 + k, bz_counter_new(0));
    bz_counter_t *told[5];
    for (unsigned k = 0; k < 5; k++)
        told[k] = bz_lookup(10 + k);
    uint64_t *small = of_home(0, 64, 3), *large = of_home(0, 4096, 4), *last = of_home(nodes - 1, 512, 5);
    one_writer(small, told[0], lock, 0);
    one_writer(large, told[1], lock, 0);
    one_writer(last, told[2], lock, nodes - 1);

    /* All nodes store to words of the same blocks, atomics too: nothing is lost. */
    bz_barrier();
    if (me == 0)
        __builtin_memset(small, 0, WORDS * 8);
    bz_barrier();
    for (unsigned i = 0; i < EACH; i++) {
        bz_fetch_add_u64(&small[i % 16], 1);
        small[16 + me] += i;
        bz_lock(lock);
        small[24]++;
        bz_unlock(lock);
    }
    bz_barrier();
    uint64_t sum = 0;
    for (unsigned w = 0; w < 16; w++)
        sum += small[w];
    CHECK(sum == EACH * nodes && small[24] == EACH * nodes);
    for (unsigned n = 0; n < nodes; n++)
        CHECK(small[16 + n] == EACH * (EACH - 1) / 2);
    bz_barrier();

    /* System calls, by the home and by another node; copies that were given back are fetched anew. */
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (uint64_t round = 1; round <= 4; round++) {
        if (me == round % nodes) {
            uint64_t words[8] = {round, round, round, round, round, round, round, round};
            CHECK(write(ends[1], words, 64) == 64 && read(ends[0], &large[100], 64) == 64);
        }
        bz_barrier();
        uint64_t words[8] = {0};
        CHECK(write(ends[1], &large[100], 64) == 64 && read(ends[0], words, 64) == 64 && words[0] == round && words[7] == round);
        bz_check_in(large, WORDS * 8);
        bz_barrier();
    }

    /* Freed memory comes back zeroed, and its old readers see it so. */
    if (me == 0) {
        bz_free(large);
        bz_attr_t update = {.block_bytes = 4096, .homes = BZ_HOMES_NODE, .node = 0, .protocol = BZ_PROTOCOL_UPDATE};
        bz_publish(6, bz_alloc_with(&update, WORDS * 8));
    }
    uint64_t *again = bz_lookup(6);
    for (unsigned w = 0; w < WORDS; w++)
        CHECK(again[w] == 0);
    bz_barrier();

    /* Not promised: a counter tells nobody what was not flushed. Node 1 has its copy, and nobody else loads. */
    volatile uint64_t *word = again;
    if (me == 1)
        CHECK(word[0] == 0);
    bz_barrier();
    if (me == 0) {
        word[0] = 7;
        add(told[3], 1);
        while (nodes > 1 && add(told[4], 0) == 0) {}
    } else if (me == 1) {
        while (add(told[3], 0) == 0) {}
        CHECK(word[0] == 0);
        add(told[4], 1);
    }
    bz_barrier();
    CHECK(word[0] == 7);
    bz_barrier();
    if (me == 0)
        printf("sum %llu\n", (unsigned long long)sum / nodes);
    return failed();
}
