/* Moldyn on shared memory as it is, the forms `plain` and `transparent`; with -DTUNED the form `tuned`.
 *
 * Forces are added in private memory, then put together as the thesis has it: in as many phases as there are run nodes, each adds what it has to another piece
 * of the shared forces.
 *
 * cc -O2 moldyn.c $(blizzard config --cflags) $(blizzard config --libs) -lm -o moldyn && blizzard run -n 2 -- ./moldyn
 */
#define _GNU_SOURCE
#include "shared.h"

static struct force *totals;

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
