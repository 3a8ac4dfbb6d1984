/* Moldyn on shared memory as it is, the forms `plain` and `transparent`; with -DTUNED the form `tuned`.
 *
 * Forces are added in private memory, then put together as the thesis has it: in as many phases as there are run nodes, each adds what it has to another piece
 * of the shared forces. In the form `tuned` all add to all pieces at once, each of which is at the run node that reads it, and the barrier sums them.
 *
 * cc -O2 moldyn.c $(blizzard config --cflags) $(blizzard config --libs) -lm -o moldyn && blizzard run -n 2 -- ./moldyn
 */
#define _GNU_SOURCE
#include "shared.h"

static struct force *totals;

#ifdef TUNED
/* Forces from the beginning of one piece to that of the next: whole pages. */
static size_t stride(void) { return (size_t)molecules() / run_nodes() / 512 * 512 + 512; }

/* To be used with the numbers of all molecules. */
static struct force *piece_of(unsigned node) { return totals + (ptrdiff_t)(node * stride()) - begin_of(node); }

static void make(void) {
    bz_attributes_t summed = {.block_bytes = 4096, .homes = BZ_HOMES_SLICES, .protocol = BZ_PROTOCOL_REDUCE_BY(BZ_BY_SUM, BZ_OF_I64)};
    make_shared();
    if (self() == 0) bz_publish(1, need(bz_alloc_with(run_nodes() * stride() * sizeof *totals, &summed)));
    totals = bz_lookup(1);
}

static struct force *merged(void) {
    bz_check_out(totals, run_nodes() * stride() * sizeof *totals, 1);
    for (unsigned node = 0; node < run_nodes(); node++)
        for (int m = begin_of(node); m < begin_of(node + 1); m++) add_force(&piece_of(node)[m], &forces[m]);
    memset(forces, 0, (size_t)molecules() * sizeof *forces);
    bz_barrier();
    return piece_of(self());
}
#else
static void make(void) {
    make_shared();
    totals = shared(1, (size_t)molecules() * sizeof *totals);
}

static struct force *merged(void) {
    for (unsigned phase = 0; phase < run_nodes(); phase++) {
        /* Each run node ends with its own piece. */
        unsigned piece = (self() + phase + 1) % run_nodes();
        for (int m = begin_of(piece); m < begin_of(piece + 1); m++) {
            add_force(&totals[m], &forces[m]);
            forces[m] = (struct force){{0}};
        }
        bz_barrier();
    }
    return totals;
}
#endif
