/* EM3D with messages, the form `mpi`: what a programmer of message passing would write.
 *
 * Each process has its own values, and a copy ("ghost") of each value of others that an edge of its leads to. Before the iterations it tells
 * the owners which it wants. After each phase every two processes that share values exchange one message.
 *
 * mpicc -O2 mpi.c -o em3d-mpi && mpirun -n 2 ./em3d-mpi
 */
#define _GNU_SOURCE
#include "em3d.h"

#include "../common_mpi.h"

/* By kind and owner: copies of its values, in the order in which they were first wanted; which those are; and how many. */
static double **ghosts[KINDS];
static int **wanted[KINDS];
static int *wanted_count[KINDS];
/* By kind, and number of the value in the graph: where among the owner's copies it is, from 1. */
static int *copy_of[KINDS];
/* By kind and reader: which own values it wants, and the message. */
static int **given[KINDS];
static int *given_count[KINDS];
static double **message[KINDS];
static MPI_Request *requests;

static void *local_memory(size_t bytes) { return malloc(bytes ? bytes : 1); }
static double *value_memory(int kind, unsigned part, uint64_t count) {
    (void)kind, (void)part;
    return local_memory(count * sizeof(double));
}

static uint64_t share(unsigned process) {
    uint64_t all = 0;
    for (unsigned part = 0; part < PARTS; part++)
        if (owner(part) == process) all += part_begin(part + 1) - part_begin(part);
    return all;
}

static void placed(void) {
    size_t all = (size_t)size;
    requests = zeros(2 * all, sizeof *requests);
    for (int kind = E; kind < KINDS; kind++) {
        ghosts[kind] = zeros(all, sizeof *ghosts[kind]);
        wanted[kind] = zeros(all, sizeof *wanted[kind]);
        wanted_count[kind] = zeros(all, sizeof(int));
        copy_of[kind] = zeros(per_kind(), sizeof(int));
        given[kind] = zeros(all, sizeof *given[kind]);
        given_count[kind] = zeros(all, sizeof(int));
        message[kind] = zeros(all, sizeof *message[kind]);
        for (unsigned p = 0; p < run_nodes(); p++)
            if (p != self()) {
                ghosts[kind][p] = zeros(share(p), sizeof(double));
                wanted[kind][p] = zeros(share(p), sizeof(int));
            }
    }
}

static const double *neighbour(int kind, unsigned part, uint64_t index) {
    unsigned from = owner(part);
    if (from == self()) return values[kind][part] + index;
    int *copy = &copy_of[kind][part_begin(part) + index];
    if (!*copy) {
        wanted[kind][from][wanted_count[kind][from]] = (int)(part_begin(part) + index);
        *copy = ++wanted_count[kind][from];
    }
    return &ghosts[kind][from][*copy - 1];
}

static double *own_value(int kind, uint64_t number) {
    unsigned part = (unsigned)(number * PARTS / per_kind());
    while (number < part_begin(part)) part--;
    while (number >= part_begin(part + 1)) part++;
    return values[kind][part] + (number - part_begin(part));
}

/* By kind and reader: addresses of what it wants. */
static double ***sources[KINDS];

/* One message each way between processes that share values. */
static void computed(int kind) {
    int count = 0;
    for (int p = 0; p < size; p++)
        if (wanted_count[kind][p])
            MPI_Irecv(ghosts[kind][p], wanted_count[kind][p], MPI_DOUBLE, p, kind, MPI_COMM_WORLD, &requests[count++]);
    for (int p = 0; p < size; p++) {
        if (!given_count[kind][p]) continue;
        for (int i = 0; i < given_count[kind][p]; i++) message[kind][p][i] = *sources[kind][p][i];
        MPI_Isend(message[kind][p], given_count[kind][p], MPI_DOUBLE, p, kind, MPI_COMM_WORLD, &requests[count++]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

static void built(void) {
    for (int kind = E; kind < KINDS; kind++) {
        MPI_Alltoall(wanted_count[kind], 1, MPI_INT, given_count[kind], 1, MPI_INT, MPI_COMM_WORLD);
        sources[kind] = zeros((size_t)size, sizeof *sources[kind]);
        for (int p = 0; p < size; p++) {
            size_t count = (size_t)given_count[kind][p];
            given[kind][p] = zeros(count, sizeof(int));
            message[kind][p] = zeros(count, sizeof(double));
            sources[kind][p] = zeros(count, sizeof(double *));
            MPI_Sendrecv(wanted[kind][p], wanted_count[kind][p], MPI_INT, p, 0, given[kind][p], given_count[kind][p], MPI_INT, p, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (size_t i = 0; i < count; i++) sources[kind][p][i] = own_value(kind, (uint64_t)given[kind][p][i]);
        }
    }
    /* The first phase reads H values as they were at first. */
    computed(H);
}
