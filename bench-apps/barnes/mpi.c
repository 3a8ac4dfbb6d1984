/* Barnes with messages, the form `mpi`: what a programmer of message passing would write first. All processes have all bodies, and each makes the whole tree.
 *
 * mpicc -O2 mpi.c -lm -o barnes-mpi && mpirun -n 2 ./barnes-mpi
 */
#define _GNU_SOURCE
#include "barnes.h"

#include <mpi.h>

static int rank, size;
/* Numbers, and those before, of each process: four for a body. */
static int *counts, *begins;

static unsigned self(void) { return (unsigned)rank; }
static unsigned run_nodes(void) { return (unsigned)size; }
static void begin_run(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}
static void end_run(void) { MPI_Finalize(); }
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

static uint64_t sum_of_all(uint64_t value) {
    uint64_t sum;
    MPI_Allreduce(&value, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}
static double largest_of_all(double value) {
    double largest;
    MPI_Allreduce(&value, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return largest;
}
