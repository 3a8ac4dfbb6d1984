//# flags: -O0 | -O2 | -O3
//# link: -pie | -no-pie -s
//# nodes: 2 3 4
/* Many writers on the same blocks: each node owns single bytes, words and unaligned words of them and finds only its own stores
 * there; loops are vectorised by the compiler at -O3. */
#include <blizzard.h>
#include <stdio.h>

enum { BYTES = 4096 };

int main(void) {
    unsigned me = bz_node(), nodes = bz_nodes();
    unsigned char *base = me == 0 ? bz_alloc(4 * BYTES) : 0;
    if (me == 0)
        bz_publish(0, base);
    base = bz_lookup(0);
    unsigned char *bytes = base;
    uint32_t *words = (uint32_t *)(base + BYTES);
    uint64_t *skewed = (uint64_t *)(base + 2 * BYTES + 60);
    uint32_t *rows = (uint32_t *)(base + 3 * BYTES);
    uint64_t wrong = 0;
    for (unsigned round = 1; round <= 30; round++) {
        for (unsigned i = me; i < BYTES; i += nodes)
            bytes[i] = (unsigned char)(i * round + me);
        for (unsigned i = me; i < BYTES / 4; i += nodes)
            words[i] += i ^ round;
        for (unsigned i = me; i < 400; i += nodes)
            skewed[i] = skewed[i] * 3 + i;
        /* Consecutive parts whose edges share blocks, for the vectoriser. */
        unsigned per = 1000 / nodes, from = me * per;
        for (unsigned i = from; i < from + per; i++)
            rows[i] = rows[i] * 5 + i;
        for (unsigned i = me; i < BYTES; i += nodes)
            wrong += bytes[i] != (unsigned char)(i * round + me);
    }
    bz_barrier();
    for (unsigned i = 0; i < BYTES; i++)
        wrong += bytes[i] != (unsigned char)(i * 30 + i % nodes);
    for (unsigned i = 0; i < BYTES / 4; i++) {
        uint32_t expected = 0;
        for (unsigned round = 1; round <= 30; round++)
            expected += i ^ round;
        wrong += words[i] != expected;
    }
    for (unsigned i = 0; i < 400; i++) {
        uint64_t expected = 0;
        for (unsigned round = 1; round <= 30; round++)
            expected = expected * 3 + i;
        wrong += skewed[i] != expected;
    }
    for (unsigned i = 0; i < 1000 / nodes * nodes; i++) {
        uint32_t expected = 0;
        for (unsigned round = 1; round <= 30; round++)
            expected = expected * 5 + i;
        wrong += rows[i] != expected;
    }
    wrong = bz_reduce_sum_u64(wrong);
    if (me == 0)
        printf("%llu wrong\n", (unsigned long long)wrong);
    return wrong != 0;
}
