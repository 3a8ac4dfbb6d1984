/* For `cc -include` with examples/heat.c. Its grids get the protocol `update`, with each node the home of its own slice: the rows that a node stores, where
 * rows are whole pages. And it takes the time from the first barrier to the last; node 0 prints "seconds S" to standard error at the end. */
#include <blizzard.h>
#include <stdio.h>
#include <time.h>

static double first_barrier, last_barrier;

static void timed_barrier(void) {
    struct timespec t;
    bz_barrier();
    clock_gettime(CLOCK_MONOTONIC, &t);
    last_barrier = (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    if (first_barrier == 0) first_barrier = last_barrier;
}

__attribute__((destructor)) static void print_time(void) {
    if (bz_node() == 0) fprintf(stderr, "seconds %.6f\n", last_barrier - first_barrier);
}

#define bz_barrier timed_barrier

static void *alloc_rows(size_t bytes) {
    bz_attr_t rows = { .protocol = BZ_PROTOCOL_UPDATE, .homes = BZ_HOMES_SLICES };
    return bz_alloc_with(&rows, bytes);
}

#define bz_alloc alloc_rows
