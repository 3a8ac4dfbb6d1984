/* examples/heat.c with messages, as a programmer of MPI would write it: each process has its band of rows, and the row in front of it and behind.
 * Times the steps: "seconds S" goes to standard error. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef SIDE
#define SIDE 254
#endif
#define STEPS 400

typedef double row_t[SIDE + 2];

int main(int argc, char **argv) {
    int me, n;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    int first = 1 + SIDE * me / n, last = SIDE * (me + 1) / n, rows = last - first + 1;
    int above = me > 0 ? me - 1 : MPI_PROC_NULL, below = me < n - 1 ? me + 1 : MPI_PROC_NULL;
    row_t *now = calloc((size_t)rows + 2, sizeof *now), *next = calloc((size_t)rows + 2, sizeof *next);
    if (now == NULL || next == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    if (me == 0)
        for (int x = 0; x < SIDE + 2; x++) now[0][x] = next[0][x] = 100.0;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int step = 0; step < STEPS; step++) {
        for (int y = 1; y <= rows; y++)
            for (int x = 1; x <= SIDE; x++)
                next[y][x] = 0.25 * (now[y - 1][x] + now[y + 1][x] + now[y][x - 1] + now[y][x + 1]);
        row_t *t = now;
        now = next;
        next = t;
        MPI_Sendrecv(now[1], SIDE + 2, MPI_DOUBLE, above, 0, now[rows + 1], SIDE + 2, MPI_DOUBLE, below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(now[rows], SIDE + 2, MPI_DOUBLE, below, 1, now[0], SIDE + 2, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - begin;
    int row = 31;
    double here = row >= first && row <= last ? now[row - first + 1][SIDE / 2] : 0, middle;
    MPI_Reduce(&here, &middle, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (me == 0) {
        printf("temperature near the hot edge after %d steps: %.12f\n", STEPS, middle);
        fprintf(stderr, "seconds %.6f\n", seconds);
    }
    MPI_Finalize();
    return 0;
}
