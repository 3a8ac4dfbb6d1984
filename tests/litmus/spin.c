/* Barriers and locks of the program's own, which spin on shared words: a sense-reversing barrier and a ticket lock. Each node writes its slot; behind a barrier it
 * sees all slots of this round; under the lock it adds to a plain counter. With the words of the barrier and the lock in blocks of their own, and all in one block, where
 * those who spin take it from those who are to go on. */
#include <blizzard.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

enum { ROUNDS = 30, LINE = 64 };

/* Word `n` of what all share: so many bytes apart. */
static _Atomic uint64_t *word(char *base, unsigned n, unsigned apart) { return (_Atomic uint64_t *)(base + (size_t)n * apart); }
enum { LEFT, SENSE, NEXT, SERVING, COUNTER, SLOTS };

static void wait_for_all(char *base, unsigned apart, unsigned nodes, uint64_t *sense) {
    *sense = !*sense;
    if (atomic_fetch_sub(word(base, LEFT, apart), 1) == 1) {
        atomic_store(word(base, LEFT, apart), nodes);
        atomic_store(word(base, SENSE, apart), *sense);
        return;
    }
    while (atomic_load_explicit(word(base, SENSE, apart), memory_order_acquire) != *sense) {
    }
}

static void add_one(char *base, unsigned apart) {
    uint64_t mine = atomic_fetch_add(word(base, NEXT, apart), 1);
    while (atomic_load_explicit(word(base, SERVING, apart), memory_order_acquire) != mine) {
    }
    /* Plain: the lock guards it. */
    uint64_t *counter = (uint64_t *)word(base, COUNTER, apart);
    *counter += 1;
    atomic_store_explicit(word(base, SERVING, apart), mine + 1, memory_order_release);
}

int main(void) {
    unsigned node = bz_node(), nodes = bz_nodes();
    uint64_t rounds = 0, wrong = 0;
    for (unsigned kind = 0; kind < 2; kind++) {
        unsigned apart = kind ? sizeof(uint64_t) : LINE;
        if (node == 0) {
            char *made = bz_alloc((SLOTS + nodes) * LINE);
            *word(made, LEFT, apart) = nodes;
            bz_publish(kind, made);
        }
        char *base = bz_lookup(kind);
        uint64_t sense = 0;
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            *(volatile uint64_t *)word(base, SLOTS + node, apart) = round;
            wait_for_all(base, apart, nodes, &sense);
            for (unsigned other = 0; other < nodes; other++)
                wrong += *(volatile uint64_t *)word(base, SLOTS + other, apart) != round;
            add_one(base, apart);
            wait_for_all(base, apart, nodes, &sense);
            wrong += *word(base, COUNTER, apart) != round * nodes;
            rounds++;
            /* Nobody adds before all have looked. */
            wait_for_all(base, apart, nodes, &sense);
        }
    }
    wrong = bz_reduce_sum_u64(wrong);
    if (node == 0)
        printf("rounds %llu\nforbidden %llu\n", (unsigned long long)rounds, (unsigned long long)wrong);
    return 0;
}
