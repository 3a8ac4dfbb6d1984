/* DSMC on shared memory as it is, the forms `plain` and `transparent`; with -DTUNED the form `tuned`.
 *
 * Particles that leave a run node's cells are put into a buffer of the run node that gets them. Barriers divide that into two phases, as the thesis has it: in the first each
 * run node writes the buffer of the one behind it, in the second that of the one before. For others there is a buffer with a lock.
 *
 * cc -O2 dsmc.c $(blizzard config --cflags) $(blizzard config --libs) -lm -o dsmc && blizzard run -n 2 -- ./dsmc
 */
#define _GNU_SOURCE
#include "../common_shared.h"

#include "dsmc.h"

enum { BEHIND, BEFORE, FAR, BUFFERS };

struct buffer {
    uint64_t count;
    struct particle particles[];
};
/* By run node and what it is for; used in turn, because the next iteration's may begin before all have been taken. */
static struct buffer **buffers[2];
static bz_lock_t **locks;
static unsigned turn;
/* What this run node gives, and to whom if it is far. */
static struct particle *given[BUFFERS];
static size_t given_count[BUFFERS];
static unsigned *far_owners;

static void make(void) {
    particles = need(bz_alloc_on(self(), most() * sizeof *particles));
    moved = need(bz_alloc_on(self(), most() * sizeof *moved));
    for (int to = BEHIND; to < BUFFERS; to++) given[to] = need(malloc(most() * sizeof **given));
    far_owners = need(malloc(most() * sizeof *far_owners));
    struct buffer ***shared = NULL;
    size_t bytes = sizeof(struct buffer) + most() * sizeof(struct particle);
    if (self() == 0) {
        bz_lock_t **all = need(bz_alloc(run_nodes() * sizeof *all));
        shared = need(bz_alloc(2 * sizeof *shared));
        for (int i = 0; i < 2; i++) shared[i] = need(bz_alloc((size_t)run_nodes() * BUFFERS * sizeof **shared));
        for (unsigned node = 0; node < run_nodes(); node++) {
            all[node] = need(bz_lock_new());
            for (unsigned i = 0; i < 2 * BUFFERS; i++) {
#ifdef TUNED
                /* At the run node that reads it; what is written together travels together. */
                bz_attr_t attributes = {.block_bytes = 2048, .homes = BZ_HOMES_NODE, .node = node};
                shared[i % 2][node * BUFFERS + i / 2] = need(bz_alloc_with(&attributes, bytes));
#else
                shared[i % 2][node * BUFFERS + i / 2] = need(bz_alloc(bytes));
#endif
            }
        }
        bz_publish(0, shared);
        bz_publish(1, all);
    }
    shared = bz_lookup(0);
    locks = bz_lookup(1);
    for (int i = 0; i < 2; i++) buffers[i] = shared[i];
    bz_barrier();
}

static struct buffer *buffer_of(unsigned node, int of) { return buffers[turn][node * BUFFERS + (unsigned)of]; }

static void give(unsigned owner, const struct particle *p) {
    int to = owner == self() + 1 ? BEHIND : owner + 1 == self() ? BEFORE : FAR;
    if (to == FAR) far_owners[given_count[FAR]] = owner;
    given[to][given_count[to]++] = *p;
}

static void put(struct buffer *buffer, const struct particle *from, size_t number) {
#ifdef TUNED
    bz_check_out(buffer->particles + buffer->count, number * sizeof *from, 1);
#endif
    memcpy(buffer->particles + buffer->count, from, number * sizeof *from);
    buffer->count += number;
#ifdef TUNED
    bz_check_in(buffer, sizeof *buffer + buffer->count * sizeof *from);
#endif
}

static void take(void) {
    if (run_nodes() == 1) return;
    if (given_count[BEHIND]) put(buffer_of(self() + 1, BEHIND), given[BEHIND], given_count[BEHIND]);
    for (size_t i = 0; i < given_count[FAR]; i++) {
        bz_lock(locks[far_owners[i]]);
        put(buffer_of(far_owners[i], FAR), &given[FAR][i], 1);
        bz_unlock(locks[far_owners[i]]);
    }
    bz_barrier();
    if (given_count[BEFORE]) put(buffer_of(self() - 1, BEFORE), given[BEFORE], given_count[BEFORE]);
    bz_barrier();
    for (int of = BEHIND; of < BUFFERS; of++) {
        struct buffer *buffer = buffer_of(self(), of);
        for (size_t i = 0; i < buffer->count; i++) keep(&buffer->particles[i]);
        if (buffer->count) buffer->count = 0;
        given_count[of] = 0;
    }
    turn = !turn;
}
