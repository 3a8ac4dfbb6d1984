/* What the forms of barnes on shared memory have in common: the tree, which all build together. With -DTUNED all cells of a run node are one after the other at their owner, travel
 * in large blocks and all at once, and are given back before they are made anew. */
#ifndef BARNES_SHARED_H
#define BARNES_SHARED_H

#include "../common_shared.h"

#include "barnes.h"

/* A lock for each cell would be too many: one for those of a run node with the same last digits, at home there. */
enum { LOCKS = 256 };
static bz_lock_t **locks;
/* Cells of each run node that are in use. */
static uint32_t *all_used;

static int tree_is_private(void) { return 0; }
static double largest_of_all(double value) { return bz_reduce_max_f64(value); }

static bz_lock_t *lock_of(uint32_t number) { return locks[(number - 1) / (uint32_t)cell_room() * LOCKS + number % LOCKS]; }
static void lock_cell(uint32_t number) { bz_lock(lock_of(number)); }
static void unlock_cell(uint32_t number) { bz_unlock(lock_of(number)); }
static void wait_for_all(void) { bz_barrier(); }

/* Memory of all, made by node 0. */
static void *shared(unsigned slot, size_t bytes) {
#ifdef TUNED
    bz_attr_t attributes = {.block_bytes = 1024, .homes = BZ_HOMES_FIRST_TOUCH};
    return made_by_node_0(slot, bytes, &attributes);
#else
    return made_by_node_0(slot, bytes, NULL);
#endif
}

static void make_tree(void) {
    cells = shared(0, cells_in_all() * sizeof *cells);
    all_used = shared(1, run_nodes() * sizeof *all_used);
    locks = shared(2, (size_t)run_nodes() * LOCKS * sizeof *locks);
    for (unsigned i = 0; i < LOCKS; i++) locks[self() * LOCKS + i] = need(bz_lock_new());
    bz_barrier();
}

static void built(void) {
    all_used[self()] = used;
    bz_barrier();
#ifdef TUNED
    for (unsigned node = 0; node < run_nodes(); node++)
        if (node != self()) bz_check_out(&cells[node * cell_room() + 1], all_used[node] * sizeof *cells, 0);
#endif
}

#endif
