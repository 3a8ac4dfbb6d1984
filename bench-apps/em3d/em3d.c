/* EM3D on shared memory as it is, the forms `plain` and `transparent`; with -DTUNED the form `tuned`.
 *
 * Everything of a part is allocated on the run node that owns it, so that all writes are local. A value that crosses between run nodes is fetched
 * in each iteration, and taken away when its owner writes it anew.
 *
 * cc -O2 em3d.c $(blizzard config --cflags) $(blizzard config --libs) -o em3d && blizzard run -n 2 -- ./em3d
 */
#define _GNU_SOURCE
#include "../common_shared.h"

#include "em3d.h"

static void *local_memory(size_t bytes) { return bz_alloc_on(self(), bytes); }

static double *value_memory(int kind, unsigned part, uint64_t count) {
    size_t bytes = count * sizeof(double);
#ifdef TUNED
    /* The owner writes, the same nodes read in each iteration: its barriers send them what is new. Most of a page is read elsewhere: the first miss fetches
     * it whole. */
    bz_attr_t whole_pages = {.block_bytes = 4096, .homes = BZ_HOMES_NODE, .node = self(), .protocol = BZ_PROTOCOL_UPDATE};
    double *v = bz_alloc_with(&whole_pages, bytes);
#else
    double *v = bz_alloc_on(self(), bytes);
#endif
    bz_publish((unsigned)kind * PARTS + part, v);
    return v;
}

static void placed(void) {
    for (int kind = E; kind < KINDS; kind++)
        for (unsigned part = 0; part < PARTS; part++) values[kind][part] = bz_lookup((unsigned)kind * PARTS + part);
}

static const double *neighbour(int kind, unsigned part, uint64_t index) { return values[kind][part] + index; }
static void built(void) { bz_barrier(); }
static void computed(int kind) {
    (void)kind;
    bz_barrier();
}
