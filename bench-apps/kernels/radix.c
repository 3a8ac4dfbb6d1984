/* Radix sort: 32-bit keys, eight bits a round.
 *
 * Each node has a part of the keys. A round counts the digits of the own keys, adds up all nodes' counts, and writes each key to where it belongs: mostly
 * into other nodes' parts, to 256 places in turn. So nodes write different words of the same blocks where their keys meet (false sharing).
 * Source: Blelloch et al., "A Comparison of Sorting Algorithms for the Connection Machine CM-2" (1991); "The SPLASH-2 Programs" (1995), section 3.
 */
#include "kernel.h"

#define DIGITS 256u
#define ROUNDS 4u

int main(int argc, char **argv) {
    const uint64_t count = kernel_size(argc, argv, 1 << 20, 64, 1 << 28);
    uint32_t *from = shared_by(0, 0, count * sizeof *from), *to = shared_by(0, 1, count * sizeof *to);
    uint32_t **counts = calloc(nodes, sizeof *counts);
    if (!counts) return 1;
    for (unsigned node = 0; node < nodes; node++)
        counts[node] = shared_by(node, 2 + node, DIGITS * sizeof **counts);
    const uint64_t first = first_of(me, count), end = first_of(me + 1, count);
    for (uint64_t i = first; i < end; i++)
        from[i] = (uint32_t)mix(i);

    measure();
    for (unsigned round = 0; round < ROUNDS; round++) {
        const unsigned shift = 8 * round;
        uint32_t own[DIGITS] = {0}, place[DIGITS], sum = 0;
        for (uint64_t i = first; i < end; i++)
            own[from[i] >> shift & (DIGITS - 1)]++;
        memcpy(counts[me], own, sizeof own);
        bz_barrier();
        for (unsigned digit = 0; digit < DIGITS; digit++) {
            for (unsigned node = 0; node < nodes; node++) {
                if (node == me) place[digit] = sum;
                sum += counts[node][digit];
            }
        }
        for (uint64_t i = first; i < end; i++)
            to[place[from[i] >> shift & (DIGITS - 1)]++] = from[i];
        bz_barrier();
        uint32_t *sorted = to;
        to = from, from = sorted;
    }
    measured("radix");

    uint64_t sum = 0;
    for (uint64_t i = first; i < end; i++) {
        if (i && from[i - 1] > from[i]) return fprintf(stderr, "radix: key %" PRIu64 " is out of order\n", i), 1;
        sum += mix(i + ((uint64_t)from[i] << 32));
    }
    return finish("radix", sum);
}
