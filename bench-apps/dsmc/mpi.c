/* DSMC with messages, the form `mpi`: what a programmer of message passing would write. Each iteration every process sends every other one a message with the
 * particles that it gets.
 *
 * mpicc -O2 mpi.c -lm -o dsmc-mpi && mpirun -n 2 ./dsmc-mpi
 */
#define _GNU_SOURCE
#include "dsmc.h"

#include "../common_mpi.h"

/* For each process. */
struct packet {
    size_t count, room;
    struct particle *particles;
    MPI_Request request;
};
static struct packet *packets;
static struct particle *came;

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
