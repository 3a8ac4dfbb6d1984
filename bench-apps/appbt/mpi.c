/* Appbt with messages, the form `mpi`: what a programmer of message passing would write.
 *
 * mpicc -O2 mpi.c -o appbt-mpi && mpirun -n 2 ./appbt-mpi
 */
#define _GNU_SOURCE
#include "messages.h"

#include "../common_mpi.h"

/* Of rows that are on their way. */
static MPI_Request *sending;

static void make(void) {
    make_private();
    sending = zeros((size_t)opt.side, sizeof *sending);
    for (int row = 0; row < opt.side; row++) sending[row] = MPI_REQUEST_NULL;
}

static void wait_for_row(int way, int d, int row) {
    MPI_Recv(own_row(way, d, 0, row), (int)own_row_doubles(way, d), MPI_DOUBLE, (int)next_to(d, way == UP ? -1 : 1), way, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void row_is_done(int way, int d, int row) {
    MPI_Wait(&sending[row], MPI_STATUS_IGNORE);
    MPI_Isend(own_row(way, d, 1, row), (int)own_row_doubles(way, d), MPI_DOUBLE, (int)next_to(d, way == UP ? 1 : -1), way, MPI_COMM_WORLD, &sending[row]);
}

static void updated(void) {
    MPI_Request requests[4 * DIMENSIONS];
    int count = 0;
    MPI_Waitall(opt.side, sending, MPI_STATUSES_IGNORE);
    for (int d = X; d < DIMENSIONS; d++)
        for (int above = 0; above < 2; above++) {
            if (!has_next(d, above)) continue;
            int other = (int)next_to(d, above ? 1 : -1), doubles = (int)side_doubles(d);
            copy_side(d, above, 1, sides_out[d][above], 1);
            MPI_Irecv(sides_in[d][above], doubles, MPI_DOUBLE, other, WAYS, MPI_COMM_WORLD, &requests[count++]);
            MPI_Isend(sides_out[d][above], doubles, MPI_DOUBLE, other, WAYS, MPI_COMM_WORLD, &requests[count++]);
        }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int d = X; d < DIMENSIONS; d++)
        for (int above = 0; above < 2; above++)
            if (has_next(d, above)) copy_side(d, above, 0, sides_in[d][above], 0);
}
