/* Appbt on shared memory as it is, the forms `plain` and `transparent`; with -DTUNED the form `tuned`.
 *
 * The values, and what crosses between blocks, are shared memory. A run node spins on a counter of the row that it waits for, as the thesis has it.
 *
 * cc -O2 appbt.c $(blizzard config --cflags) $(blizzard config --libs) -o appbt && blizzard run -n 2 -- ./appbt
 */
#define _GNU_SOURCE
#include "../common_shared.h"

#include "appbt.h"

/* How often a row has crossed: by way, dimension, part below, row and part of its lines. A block of memory each. */
struct counter {
    _Alignas(64) uint64_t count;
};
static struct counter *counters[WAYS][DIMENSIONS];
/* Rows that this run node has waited for, and done, in this iteration. */
static uint64_t iteration = 1;

static void *shared(unsigned slot, size_t bytes, unsigned block_bytes) {
    if (self() == 0) {
#ifdef TUNED
        /* What crosses together is fetched together, from the run node that writes it. */
        bz_attr_t attributes = {.block_bytes = block_bytes, .homes = BZ_HOMES_FIRST_TOUCH};
        bz_publish(slot, need(bz_alloc_with(&attributes, bytes ? bytes : 1)));
#else
        (void)block_bytes;
        bz_publish(slot, need(bz_alloc(bytes ? bytes : 1)));
#endif
    }
    return bz_lookup(slot);
}

static void make(void) {
    values = shared(0, cells() * VALUES * sizeof *values, 1024);
    for (int way = UP; way < WAYS; way++)
        for (int d = X; d < DIMENSIONS; d++) {
            unsigned slot = 1 + 2 * (unsigned)(way * DIMENSIONS + d);
            size_t rows = (size_t)(parts[d] - 1) * (size_t)opt.side;
            crossings[way][d] = shared(slot, crossing_doubles(way, d) * sizeof *values, 1024);
            counters[way][d] = shared(slot + 1, rows * (size_t)parts[line_of[d]] * sizeof(struct counter), 64);
        }
}

static uint64_t *counter_at(int way, int d, int below, int row) {
    return &counters[way][d][(below * opt.side + row) * parts[line_of[d]] + place[line_of[d]]].count;
}

static void wait_for_row(int way, int d, int row) {
    int below = way == UP ? place[d] - 1 : place[d];
    const uint64_t *count = counter_at(way, d, below, row);
    while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < iteration) {}
#ifdef TUNED
    int first = from[line_of[d]], last = to[line_of[d]];
    bz_check_out(crossing_at(way, d, below, row, first), (size_t)(last - first) * crossing[way] * sizeof(double), 0);
#endif
}

static void row_is_done(int way, int d, int row) {
    __atomic_store_n(counter_at(way, d, way == UP ? place[d] : place[d] - 1, row), iteration, __ATOMIC_RELEASE);
}

static void updated(void) {
    bz_barrier();
    iteration++;
#ifdef TUNED
    size_t plane = stride(Z) * VALUES, bytes = plane * sizeof *values;
    if (has_below(Z)) bz_check_out(values + (size_t)(from[Z] - 1) * plane, bytes, 0);
    if (has_above(Z)) bz_check_out(values + (size_t)to[Z] * plane, bytes, 0);
#endif
}
