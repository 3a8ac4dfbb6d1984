/* What all applications have in common in the form `mpi`. */
#ifndef COMMON_MPI_H
#define COMMON_MPI_H

#include <mpi.h>

static int rank, size;

static unsigned self(void) { return (unsigned)rank; }
static unsigned run_nodes(void) { return (unsigned)size; }
static void begin_run(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}
static void end_run(void) { MPI_Finalize(); }
static uint64_t sum_of_all(uint64_t value) {
    uint64_t sum;
    MPI_Allreduce(&value, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

#endif
