/* Barnes with messages, the form `mpi`: what a programmer of message passing would write first. All processes have all bodies, and each makes the whole tree.
 *
 * mpicc -O2 mpi.c -lm -o barnes-mpi && mpirun -n 2 ./barnes-mpi
 */
#define _GNU_SOURCE
#include "barnes.h"

#include "../common_mpi.h"

/* Numbers, and those before, of each process: four for a body. */
static int *counts, *begins;

static int tree_is_private(void) { return 1; }

static void make(void) {
    bodies = zeros(opt.bodies, sizeof *bodies);
    cells = need(aligned_alloc(64, cells_in_all() * sizeof *cells));
    counts = zeros((size_t)size, sizeof(int));
    begins = zeros((size_t)size, sizeof(int));
    for (unsigned p = 0; p < run_nodes(); p++) {
        begins[p] = 4 * (int)begin_of(p);
        counts[p] = 4 * (int)begin_of(p + 1) - begins[p];
    }
}

static void lock_cell(uint32_t number) { (void)number; }
static void unlock_cell(uint32_t number) { (void)number; }
static void wait_for_all(void) {}
static void built(void) {}
static void moved(void) { MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, bodies, counts, begins, MPI_DOUBLE, MPI_COMM_WORLD); }

static double largest_of_all(double value) {
    double largest;
    MPI_Allreduce(&value, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return largest;
}
