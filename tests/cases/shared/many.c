//# compilers: gcc
//# flags: -O2
//# nodes: 96
/* More nodes than a word has bits: barriers, locks, reductions and broadcasts of all of them, a block that each has a copy of, one that each stores to in turn,
 * and one that moves from node to node. */
#include "check.h"

enum { ROUNDS = 2, FEW = 16 };

int main(void) {
    const unsigned me = node = bz_node(), nodes = bz_nodes();
    struct shared {
        volatile uint64_t all, turn;
        uint64_t pad[6];
        volatile uint64_t ring[8];
        volatile uint64_t under_lock;
    } *s;
    bz_lock_t *lock = 0;
    if (me == 0) {
        s = bz_alloc(sizeof *s);
        lock = bz_lock_new();
        bz_publish(0, s);
        bz_publish(1, lock);
    }
    s = bz_lookup(0);
    lock = bz_lookup(1);
    /* Each node has a line of its own, at home with its neighbour; everybody reads all of them. */
    volatile uint64_t *mine = bz_alloc_on((me + 1) % nodes, 64);
    bz_publish(10 + me, (void *)mine);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        /* All have a copy, and one takes them all away. */
        const unsigned writer = (unsigned)(round * 31 % nodes);
        if (me == writer)
            s->all = round;
        bz_barrier();
        CHECK(s->all == round);
        mine[0] = round * 1000 + me;
        bz_barrier();
        uint64_t sum = 0;
        for (unsigned n = 0; n < nodes; n++)
            sum += ((volatile uint64_t *)bz_lookup(10 + n))[0];
        CHECK(sum == round * 1000 * nodes + (uint64_t)nodes * (nodes - 1) / 2);
        /* The ring: every sixteenth node after the one before. */
        if (me == 0)
            s->ring[0] = 0;
        bz_barrier();
        if (me % FEW == 0) {
            while (s->ring[0] != me) {}
            s->ring[1 + me / FEW % 7] = round;
            s->ring[0] = me + FEW;
        }
        bz_lock(lock);
        s->under_lock++;
        bz_unlock(lock);
        bz_barrier();
        CHECK(s->ring[0] == (nodes + FEW - 1) / FEW * FEW && s->under_lock == round * nodes);
        /* The last node is in every set. */
        uint64_t words[2] = {me, 1};
        bz_reduce(BZ_REDUCE_SUM_U64, words, 2);
        CHECK(words[0] == (uint64_t)nodes * (nodes - 1) / 2 && words[1] == nodes);
        uint64_t told = me == nodes - 1 ? 77 + round : 0;
        bz_broadcast(nodes - 1, &told, sizeof told);
        CHECK(told == 77 + round);
    }
    return failed();
}
