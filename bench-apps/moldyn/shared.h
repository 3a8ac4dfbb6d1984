/* What the forms of moldyn on shared memory have in common: positions that are fetched on demand, or with -DTUNED in large blocks and all at once. */
#ifndef MOLDYN_SHARED_H
#define MOLDYN_SHARED_H

#include "../common_shared.h"

#include "moldyn.h"

static void *shared(unsigned slot, size_t bytes) {
#ifdef TUNED
    /* Whole pages, at the run node that writes them. */
    bz_attr_t attributes = {.block_bytes = 4096, .homes = BZ_HOMES_FIRST_TOUCH};
    return made_by_node_0(slot, bytes, &attributes);
#else
    return made_by_node_0(slot, bytes, NULL);
#endif
}

static void make_shared(void) {
    positions = shared(0, (size_t)molecules() * sizeof *positions);
    forces = zeros((size_t)molecules(), sizeof *forces);
}

static void moved(void) {
    bz_barrier();
#ifdef TUNED
    bz_check_out(positions, (size_t)molecules() * sizeof *positions, 0);
#endif
}

#endif
