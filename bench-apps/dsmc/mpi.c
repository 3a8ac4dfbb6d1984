/* DSMC with messages, the form `mpi`: what a programmer of message passing would write. Each iteration every process sends every other one a message with the
 * particles that it gets.
 *
 * mpicc -O2 mpi.c -lm -o dsmc-mpi && mpirun -n 2 ./dsmc-mpi
 */
#define _GNU_SOURCE
#include "dsmc.h"

#include <mpi.h>

static int rank, size;

/* For each process. */
struct packet {
    size_t count, room;
    struct particle *particles;
    MPI_Request request;
};
static struct packet *packets;
static struct particle *came;

static unsigned self(void) { return (unsigned)rank; }
static unsigned run_nodes(void) { return (unsigned)size; }
static void begin_run(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}
static void end_run(void) { MPI_Finalize(); }

static void make(void) {
    particles = need(malloc(most() * sizeof *particles));
    moved = need(malloc(most() * sizeof *moved));
    packets = need(calloc((size_t)size, sizeof *packets));
}

static void give(unsigned owner, const struct particle *p) {
    struct packet *packet = &packets[owner];
    if (packet->count == packet->room) {
        packet->room = packet->room ? 2 * packet->room : 64;
        packet->particles = need(realloc(packet->particles, packet->room * sizeof *p));
    }
    packet->particles[packet->count++] = *p;
}

static void take(void) {
    for (int p = 0; p < size; p++)
        if (p != rank) MPI_Isend(packets[p].particles, (int)(packets[p].count * sizeof *particles), MPI_BYTE, p, 0, MPI_COMM_WORLD, &packets[p].request);
    for (int p = 0; p < size; p++) {
        if (p == rank) continue;
        MPI_Status status;
        int bytes;
        MPI_Probe(p, 0, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        came = need(realloc(came, bytes ? (size_t)bytes : 1));
        MPI_Recv(came, bytes, MPI_BYTE, p, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (size_t i = 0; i < (size_t)bytes / sizeof *came; i++) keep(&came[i]);
    }
    for (int p = 0; p < size; p++) {
        if (p == rank) continue;
        MPI_Wait(&packets[p].request, MPI_STATUS_IGNORE);
        packets[p].count = 0;
    }
}

static uint64_t sum_of_all(uint64_t value) {
    uint64_t sum;
    MPI_Allreduce(&value, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}
