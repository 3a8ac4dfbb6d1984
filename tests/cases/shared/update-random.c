//# flags: -O2
//# link: -pie
//# compilers: gcc
//# nodes: 2 3 4
//# guarded-nodes: 2
/* BZ_PROTOCOL_UPDATE at random: exactly what it promises. Each node is the home of an array and stores there, in an order that the others know: a word's value is the number of the
 * step. It says so by counters, which flush nothing: how far it may have come, before the stores, and how far it has flushed, behind one of the calls that flush. So whoever
 * loads knows the oldest value that the promise allows, and the newest that there can be. Loads of one word go forward only. Between the words lie some that all nodes add to,
 * which take the blocks away from their homes: nothing is lost. */
#include "check.h"

enum { WORDS = 640, MOST_NODES = 4, ROUNDS = 24, BATCHES = 6, MOST_STORES = 40, LOADS = 48, EVERY = 16 };
static const uint32_t block_bytes[] = {64, 256, 4096, 512};

static uint64_t mixed(uint64_t a, uint64_t b) {
    uint64_t x = a * 0x9e3779b97f4a7c15u + b + 1;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
/* What the home does: so many steps belong to a batch, and step `step` stores to that word. */
static unsigned stores_of(unsigned home, uint64_t batch) { return 1 + mixed(home, ~batch) % MOST_STORES; }
static unsigned word_of(unsigned home, uint64_t step) {
    const unsigned w = mixed(home + 8, step) % WORDS;
    return w % EVERY == 0 ? w + 1 : w;
}

/* The array of a home as it is when so many batches are over. */
struct as_of {
    uint64_t batches, steps, words[WORDS];
};
static void advance(struct as_of *to, unsigned home, uint64_t batches) {
    for (; to->batches < batches; to->batches++)
        for (unsigned n = stores_of(home, to->batches); n > 0; n--) {
            to->steps++;
            to->words[word_of(home, to->steps)] = to->steps;
        }
}

static struct as_of flushed[MOST_NODES], begun[MOST_NODES];
static uint64_t loaded[MOST_NODES][WORDS];
static volatile uint64_t *array[MOST_NODES];
static bz_counter_t *tells_flushed[MOST_NODES], *tells_begun[MOST_NODES];

static uint64_t value(bz_counter_t *counter) { return bz_counter_op(counter, BZ_ADD, 0, 0); }

/* One of the calls that flush. */
static void flush(unsigned how, bz_lock_t *lock, bz_event_t *event) {
    switch (how % 6) {
    case 0: bz_flush(); break;
    case 1: bz_lock(lock), bz_unlock(lock); break;
    case 2: bz_publish(900 + node, (void *)array[node]); break;
    case 3: bz_event_set(event); break;
    case 4: bz_event_clear(event); break;
    default: bz_remote_fence();
    }
}

/* Loads words of a home, each of which must be between what has been flushed and what has begun. */
static void look(unsigned home, uint64_t random) {
    unsigned which[LOADS];
    uint64_t found[LOADS];
    advance(&flushed[home], home, value(tells_flushed[home]));
    for (unsigned k = 0; k < LOADS; k++) {
        which[k] = mixed(random, k) % WORDS;
        if (which[k] % EVERY == 0)
            which[k]++;
        found[k] = array[home][which[k]];
    }
    advance(&begun[home], home, value(tells_begun[home]));
    for (unsigned k = 0; k < LOADS; k++) {
        const unsigned w = which[k];
        CHECK(found[k] >= flushed[home].words[w]);
        CHECK(found[k] <= begun[home].words[w]);
        CHECK(found[k] == 0 || (found[k] <= begun[home].steps && word_of(home, found[k]) == w));
        CHECK(found[k] >= loaded[home][w]);
        loaded[home][w] = found[k];
    }
}

int main(void) {
    const unsigned me = node = bz_node(), nodes = bz_nodes();
    for (unsigned home = 0; home < nodes; home++) {
        const bz_attr_t update = {
            .block_bytes = block_bytes[home], .homes = BZ_HOMES_NODE, .node = home, .protocol = BZ_PROTOCOL_UPDATE};
        if (me == 0) {
            bz_publish(10 + home, bz_alloc_with(&update, WORDS * 8));
            bz_publish(20 + home, bz_counter_new(0));
            bz_publish(30 + home, bz_counter_new(0));
            bz_publish(40 + home, bz_event_new());
        }
        array[home] = bz_lookup(10 + home);
        tells_flushed[home] = bz_lookup(20 + home), tells_begun[home] = bz_lookup(30 + home);
    }
    if (me == 0)
        bz_publish(1, bz_lock_new());
    bz_lock_t *lock = bz_lookup(1);
    bz_event_t *event = bz_lookup(40 + me);
    uint64_t added = 0, step = 0, batch = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned n = 0; n < BATCHES; n++, batch++) {
            const uint64_t random = mixed(me + 100, batch);
            bz_counter_op(tells_begun[me], BZ_ADD, 1, 0);
            for (unsigned left = stores_of(me, batch); left > 0; left--) {
                step++;
                array[me][word_of(me, step)] = step;
            }
            flush(random >> 8, lock, event);
            bz_counter_op(tells_flushed[me], BZ_ADD, 1, 0);
            for (unsigned k = 1; k < nodes; k++)
                look((me + k) % nodes, random + k);
            /* By turns, another node is in the way. */
            const unsigned home = (random >> 16) % nodes;
            if ((random >> 24) % 4 == 0)
                bz_fetch_add_u64((uint64_t *)&array[home][(random >> 32) % (WORDS / EVERY) * EVERY], 1), added++;
            if ((random >> 48) % 8 == 0 && home != me)
                bz_check_in((void *)array[home], WORDS * 8);
        }
        bz_barrier();
        /* As of this barrier, all of it. */
        for (unsigned home = 0; home < nodes; home++) {
            if (home == round % nodes)
                for (unsigned w = 0; w < WORDS; w++) {
                    advance(&flushed[home], home, batch);
                    CHECK(w % EVERY == 0 || array[home][w] == flushed[home].words[w]);
                    if (w % EVERY)
                        loaded[home][w] = array[home][w];
                }
        }
        bz_barrier();
    }
    added = bz_reduce_sum_u64(added);
    uint64_t sum = 0;
    for (unsigned home = 0; home < nodes; home++)
        for (unsigned w = 0; w < WORDS; w += EVERY)
            sum += array[home][w];
    CHECK(sum == added);
    bz_barrier();
    if (me == 0)
        printf("rounds %u\n", ROUNDS);
    return failed();
}
