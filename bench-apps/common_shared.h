/* What all applications have in common in the forms on shared memory. */
#ifndef COMMON_SHARED_H
#define COMMON_SHARED_H

#include <blizzard.h>
#include <stddef.h>
#include <stdint.h>

static inline void *need(void *p);

static unsigned self(void) { return bz_node(); }
static unsigned run_nodes(void) { return bz_nodes(); }
static void begin_run(int *argc, char ***argv) { (void)argc, (void)argv; }
static void end_run(void) { bz_barrier(); }
static uint64_t sum_of_all(uint64_t value) { return bz_reduce_sum_u64(value); }

/* Memory of all that node 0 makes, with these attributes (NULL: those of the run). */
static inline void *made_by_node_0(unsigned slot, size_t bytes, const bz_attr_t *attributes) {
    if (bz_node() == 0) bz_publish(slot, need(bz_alloc_with(attributes, bytes)));
    return bz_lookup(slot);
}

#endif
