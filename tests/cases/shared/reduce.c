//# flags: -O2
//# link: -pie
//# nodes: 2 3 4
/* BZ_PROTOCOL_REDUCE_BY: sums of floats to the last bit, minima, maxima and ors exactly; set by the home, added to by all, round after round. */
#include <math.h>
#include <string.h>

#include "check.h"

enum { WORDS = 700, ROUNDS = 5, BINS = 64 };

static void *combined(unsigned slot, unsigned by, unsigned homes, uint32_t block_bytes, uint32_t protocol) {
    bz_attr_t how = {.block_bytes = block_bytes, .homes = homes, .node = bz_nodes() - 1, .protocol = protocol};
    if (bz_node() == by)
        bz_publish(slot, bz_alloc_with(&how, WORDS * 8));
    return bz_lookup(slot);
}

/* Of any four of these the sum depends on the order. */
static double addend(unsigned of, unsigned w, unsigned round) {
    static const double factors[] = {1e16, 1.0, -1e16, 1e-3};
    return (double)(w % 13 + round) * factors[(of + w + round) % 4];
}

int main(void) {
    const unsigned me = node = bz_node(), nodes = bz_nodes(), home = nodes - 1;
    double *sums = combined(1, 0, BZ_HOMES_NODE, 64, BZ_PROTOCOL_REDUCE_BY(BZ_BY_SUM, BZ_OF_F64));
    float *low = combined(2, 0, BZ_HOMES_ROUND_ROBIN, 4096, BZ_PROTOCOL_REDUCE_BY(BZ_BY_MIN, BZ_OF_F32));
    int64_t *high = combined(3, home, BZ_HOMES_SLICES, 256, BZ_PROTOCOL_REDUCE_BY(BZ_BY_MAX, BZ_OF_I64));
    uint64_t *bits = combined(4, home, BZ_HOMES_NODE, 0, BZ_PROTOCOL_REDUCE_BY(BZ_BY_OR, BZ_OF_U64));
    uint32_t *bins = combined(5, 0, BZ_HOMES_NODE, 0, BZ_PROTOCOL_REDUCE_BY(BZ_BY_SUM, BZ_OF_U32));
    CHECK(sums[1] == 0 && low[1] == INFINITY && high[1] == INT64_MIN && bits[1] == 0 && bins[1] == 0);
    bz_barrier();
    double expected[WORDS] = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        /* The home sets, with nobody adding. */
        if (round == 2) {
            if (me == home)
                for (unsigned w = 0; w < WORDS; w++)
                    sums[w] = w;
            for (unsigned w = 0; w < WORDS; w++)
                expected[w] = w;
            bz_barrier();
            CHECK(sums[WORDS - 1] == WORDS - 1);
            bz_barrier();
        }
        bz_check_out(sums, WORDS * 8, 1);
        bz_check_out(low, WORDS * 4, 1);
        bz_check_out(high, WORDS * 8, 1);
        bz_check_out(bits, WORDS * 8, 1);
        bz_check_out(bins, BINS * 4, 1);
        for (unsigned w = 0; w < WORDS; w++) {
            if ((w + me) % 3)
                sums[w] += addend(me, w, round);
            float f = (float)((w * 37 + me * 11 + round) % 101);
            low[w] = f < low[w] ? f : low[w];
            int64_t i = (int64_t)((w * 53 + me * 29 + round) % 1009) - 500;
            high[w] = high[w] > i ? high[w] : i;
            bits[w] |= 1ull << (me * 8 + round);
            bins[(w * 7 + me) % BINS]++;
        }
        bz_barrier();
        for (unsigned w = 0; w < WORDS; w++) {
            if ((w + home) % 3)
                expected[w] += addend(home, w, round);
            for (unsigned n = 0; n < nodes; n++)
                if (n != home && (w + n) % 3)
                    expected[w] += addend(n, w, round);
            CHECK(memcmp(&sums[w], &expected[w], 8) == 0);
            float least = INFINITY;
            int64_t most = INT64_MIN;
            uint64_t all = 0;
            for (unsigned n = 0; n < nodes; n++)
                for (unsigned r = 0; r <= round; r++) {
                    float f = (float)((w * 37 + n * 11 + r) % 101);
                    least = f < least ? f : least;
                    int64_t i = (int64_t)((w * 53 + n * 29 + r) % 1009) - 500;
                    most = most > i ? most : i;
                    all |= 1ull << (n * 8 + r);
                }
            CHECK(low[w] == least && high[w] == most && bits[w] == all);
        }
        unsigned counted = 0;
        for (unsigned b = 0; b < BINS; b++)
            counted += bins[b];
        CHECK(counted == nodes * WORDS * (round + 1));
        bz_barrier();
    }
    if (me == 0)
        printf("ok\n");
    return failed();
}
