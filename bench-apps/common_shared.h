/* What all applications have in common in the forms on shared memory. */
#ifndef COMMON_SHARED_H
#define COMMON_SHARED_H

#include <blizzard.h>

static unsigned self(void) { return bz_node(); }
static unsigned run_nodes(void) { return bz_nodes(); }
static void begin_run(int *argc, char ***argv) { (void)argc, (void)argv; }
static void end_run(void) { bz_barrier(); }
static uint64_t sum_of_all(uint64_t value) { return bz_reduce_sum_u64(value); }

#endif
