/* Moldyn with messages, the form `mpi`: what a programmer of message passing would write. All processes have all positions; the library adds the forces.
 *
 * mpicc -O2 mpi.c -lm -o moldyn-mpi && mpirun -n 2 ./moldyn-mpi
 */
#define _GNU_SOURCE
#include "moldyn.h"

#include "../common_mpi.h"

/* Numbers, and those before, of each process: three for a molecule. */
static int *counts, *begins;
static struct force *own;

static void make(void) {
    positions = zeros((size_t)molecules(), sizeof *positions);
    forces = zeros((size_t)molecules(), sizeof *forces);
    counts = zeros((size_t)size, sizeof(int));
    begins = zeros((size_t)size, sizeof(int));
    for (unsigned p = 0; p < run_nodes(); p++) {
        begins[p] = 3 * begin_of(p);
        counts[p] = 3 * begin_of(p + 1) - begins[p];
    }
    own = zeros((size_t)counts[rank] / 3, sizeof *own);
}

static struct force *merged(void) {
    MPI_Reduce_scatter(forces, own, counts, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    memset(forces, 0, (size_t)molecules() * sizeof *forces);
    memcpy(forces + begin_of(self()), own, (size_t)counts[rank] / 3 * sizeof *own);
    return forces;
}

static void moved(void) {
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, positions, counts, begins, MPI_DOUBLE, MPI_COMM_WORLD);
}
