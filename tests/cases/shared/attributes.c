//# flags: -O0 | -O2
//# link: -pie
//# nodes: 2 3 4
/* bz_alloc_with: allocations of all block sizes with all kinds of homes and all protocols, one after the other, in which words of all nodes alternate. What is computed
 * depends on none of them. Attributes in shared memory are read as any data. */
#include "check.h"

enum { SIZES = 8, HOMES = 4, WORDS = 700, ROUNDS = 3 };

static uint64_t *memory[SIZES * HOMES];

int main(void) {
    const unsigned me = node = bz_node(), nodes = bz_nodes();
    /* Node 0 writes the attributes where all nodes read them. */
    if (me == 0) {
        bz_attr_t *all = bz_alloc(SIZES * HOMES * sizeof *all);
        for (unsigned k = 0; k < SIZES * HOMES; k++)
            all[k] = (bz_attr_t){k % SIZES ? 32u << k % SIZES : 0, k / SIZES, k % nodes, (k + k / SIZES) % 5};
        bz_publish(0, all);
    }
    bz_attr_t *all = bz_lookup(0);
    for (unsigned k = 0; k < SIZES * HOMES; k++) {
        if (k % nodes == me)
            bz_publish(k + 1, bz_alloc_with(&all[k], WORDS * 8));
        memory[k] = bz_lookup(k + 1);
        size_t aligned = all[k].block_bytes ? all[k].block_bytes : 64;
        CHECK(memory[k] && ((uintptr_t)memory[k] & (aligned - 1)) == 0);
    }
    uint64_t sum = 0;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (unsigned k = 0; k < SIZES * HOMES; k++)
            for (unsigned w = 0; w < WORDS; w++)
                if ((w + round) % nodes == me)
                    memory[k][w] += round * (k + 1) + w;
        bz_barrier();
        for (unsigned k = 0; k < SIZES * HOMES; k++)
            for (unsigned w = me; w < WORDS; w += nodes)
                sum += memory[k][w] * round;
        bz_barrier();
    }
    sum = bz_reduce_sum_u64(sum);
    /* Copies between memory of different block sizes, by string instructions and vector moves. */
    if (me == nodes - 1)
        for (unsigned k = 0; k + 1 < SIZES * HOMES; k++)
            __builtin_memcpy(memory[k + 1], memory[k], WORDS * 8);
    bz_barrier();
    for (unsigned k = 0; k < SIZES * HOMES; k++)
        for (unsigned w = 0; w < WORDS; w++)
            CHECK(memory[k][w] == 6 + 3ull * w);
    bz_barrier();
    for (unsigned k = 0; k < SIZES * HOMES; k++)
        if ((k + 1) % nodes == me) {
            bz_free(memory[k]);
            uint64_t *again = bz_alloc_with(&all[k], WORDS * 8);
            for (unsigned w = 0; w < WORDS; w++)
                CHECK(again[w] == 0);
        }
    CHECK(bz_alloc_with(0, 0) != 0);
    if (me == 0)
        printf("sum %llu\n", (unsigned long long)sum);
    return failed();
}
