/* Unstructured on shared memory as it is, the forms `plain` and `transparent`; with -DTUNED the form `tuned`.
 *
 * Points and sums are one array each. Fluxes are added in private memory, then put together as the thesis has it: in as many phases as there are run nodes, each
 * adds what it has to another piece of the shared sums. (The thesis's program also adds zeros, so that all sums go round.) Points of others are fetched on demand.
 *
 * cc -O2 unstructured.c $(blizzard config --cflags) $(blizzard config --libs) -lm -o unstructured && blizzard run -n 2 -- ./unstructured
 */
#define _GNU_SOURCE
#include "../common_shared.h"

#include "unstructured.h"

static struct sums *totals;

static int place_of(int point) { return point; }

static void *shared(unsigned slot, size_t bytes) {
#ifdef TUNED
    /* Whole pages, at the run node that uses them. */
    bz_attr_t attributes = {.block_bytes = 4096, .homes = BZ_HOMES_FIRST_TOUCH};
    return made_by_node_0(slot, bytes, &attributes);
#else
    return made_by_node_0(slot, bytes, NULL);
#endif
}

static void make_points(void) {
    points = shared(0, (size_t)all_points() * sizeof *points);
    totals = shared(1, (size_t)all_points() * sizeof *totals);
    sums = zeros((size_t)all_points(), sizeof *sums);
}
static void built(void) { bz_barrier(); }

static struct sums *merged(void) {
    for (unsigned phase = 0; phase < run_nodes(); phase++) {
        /* Each run node ends with its own piece. */
        unsigned piece = (self() + phase + 1) % run_nodes();
        for (int place = begin_of(piece); place < begin_of(piece + 1); place++) {
            struct sums *s = &sums[place];
            if (!(s->of[0] | s->of[1] | s->of[2] | s->of[3] | s->of[4])) continue;
            add_sums(&totals[place], s);
            *s = (struct sums){{0}};
        }
        bz_barrier();
    }
    return totals;
}
static void updated(void) { bz_barrier(); }
