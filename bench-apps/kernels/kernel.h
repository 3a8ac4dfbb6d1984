/* What the kernels of this folder have in common: options, time, checksum.
 *
 * Each kernel is one source for all runs: by itself it is the one node of its run, and `blizzard run -n N` gives it N.
 * Node k of n works on the k-th of n equal parts of the data. What is computed does not depend on n, to the last bit.
 * Standard output: one line of node 0, with a checksum over all results. Standard error: one line with the time of what is measured.
 */
#define _GNU_SOURCE
#include <blizzard.h>

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static unsigned me, nodes;
static double began;

static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The finaliser of splitmix64: random numbers as hashes of what they are for. */
static inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The number behind the program's name, a number from `least` to `most`; `usual` without one. */
static inline uint64_t kernel_size(int argc, char **argv, uint64_t usual, uint64_t least, uint64_t most) {
    me = bz_node(), nodes = bz_nodes();
    if (argc < 2) return usual;
    char *end;
    uint64_t n = strtoull(argv[1], &end, 10);
    if (argc > 2 || end == argv[1] || *end || n < least || n > most) {
        if (me == 0) fprintf(stderr, "%s: one size from %" PRIu64 " to %" PRIu64 " is wanted\n", argv[0], least, most);
        exit(2);
    }
    return n;
}

/* First of `count` things that belong to a node; the next node's first is the end. */
static inline uint64_t first_of(unsigned node, uint64_t count) { return count * node / nodes; }

/* What node `from` has allocated, for all. */
static inline void *shared_by(unsigned from, unsigned slot, size_t bytes) {
    if (me == from) {
        void *memory = bz_alloc_on(from, bytes);
        if (!memory) exit(1);
        bz_publish(slot, memory);
    }
    return bz_lookup(slot);
}

static inline void measure(void) {
    bz_barrier();
    began = seconds();
}

/* The end of what is measured. */
static inline void measured(const char *name) {
    bz_barrier();
    if (me == 0) fprintf(stderr, "%s: %.6f s on %u nodes\n", name, seconds() - began, nodes);
}

/* `part`: the sum of the hashes of this node's results. */
static inline int finish(const char *name, uint64_t part) {
    uint64_t sum = bz_reduce_sum_u64(part);
    if (me == 0) printf("%s: checksum %016" PRIx64 "\n", name, sum);
    return 0;
}
