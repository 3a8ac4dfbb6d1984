/* Allocation: each node allocates and frees records of many sizes that it links into lists of its own; now and then it frees another node's.
 *
 * Most records are freed by who allocated them. One in sixteen goes to the next node's list, by a shared array, and is freed there.
 */
#include "kernel.h"

#define LISTS 64u
#define HANDED 1024u

struct record {
    struct record *next;
    uint64_t value, bytes;
};

int main(int argc, char **argv) {
    const uint64_t rounds = kernel_size(argc, argv, 200000, HANDED, 1 << 28) / HANDED;
    struct record ***handed = calloc(nodes, sizeof *handed);
    static struct record *lists[LISTS];
    if (!handed) return 1;
    for (unsigned node = 0; node < nodes; node++)
        handed[node] = shared_by(node, node, HANDED * sizeof **handed);
    uint64_t sum = 0;

    measure();
    for (uint64_t round = 0; round < rounds; round++) {
        const uint64_t first = first_of(me, HANDED), end = first_of(me + 1, HANDED);
        for (uint64_t i = first; i < end; i++) {
            const uint64_t random = mix(round * HANDED + i), bytes = sizeof(struct record) + random % 300;
            struct record *r = bz_alloc(bytes);
            if (!r) return 1;
            if (r->next || r->value || r->bytes) return fprintf(stderr, "pool: memory is not zero\n"), 1;
            r->value = random, r->bytes = bytes;
            if (random % 16 == 0) {
                handed[me][i] = r;
                continue;
            }
            struct record **list = &lists[random / 16 % LISTS];
            r->next = *list, *list = r;
            if (random / 1024 % 8 == 0)
                while (*list) {
                    struct record *old = *list;
                    *list = old->next, sum += mix(old->value + old->bytes);
                    bz_free(old);
                }
        }
        bz_barrier();
        const unsigned from = (me + 1) % nodes;
        for (uint64_t i = first_of(from, HANDED); i < first_of(from + 1, HANDED); i++) {
            struct record *r = handed[from][i];
            if (!r) continue;
            handed[from][i] = NULL, sum += mix(r->value + r->bytes);
            bz_free(r);
        }
        bz_barrier();
    }
    for (unsigned k = 0; k < LISTS; k++)
        while (lists[k]) {
            struct record *old = lists[k];
            lists[k] = old->next, sum += mix(old->value + old->bytes);
            bz_free(old);
        }
    measured("pool");
    return finish("pool", sum);
}
