/* Unstructured with messages, the form `mpi`: what a programmer of message passing would write.
 *
 * Each process has its own points, and a copy of each point of others that an edge or a face of its has. Every two processes that share points exchange
 * two messages an iteration: sums to the owner, then quantities to whoever has a copy.
 *
 * mpicc -O2 mpi.c -lm -o unstructured-mpi && mpirun -n 2 ./unstructured-mpi
 */
#define _GNU_SOURCE
#include "unstructured.h"

#include "../common_mpi.h"

/* Copies have the places behind the own points, in the order in which they were first wanted. By point: its copy's place, or 0. */
static int *copy_of, copies;
/* By process: the points that I have copies of; the places of their copies; places of own points that it has copies of. */
struct peer {
    int *points, *copies, count;
    int *given, given_count;
    struct sums *sums_out, *sums_in;
    struct point *points_out, *points_in;
};
static struct peer *peers;
static MPI_Request *requests;
static MPI_Datatype of_sums, of_point;

static void make_points(void) {
    points = zeros((size_t)all_points(), sizeof *points);
    sums = zeros((size_t)all_points(), sizeof *sums);
    copy_of = zeros((size_t)all_points(), sizeof(int));
    peers = zeros((size_t)size, sizeof *peers);
    requests = zeros((size_t)size * 2, sizeof *requests);
    for (int p = 0; p < size; p++) {
        int most = begin_of((unsigned)p + 1) - begin_of((unsigned)p);
        peers[p].points = zeros((size_t)most, sizeof(int));
        peers[p].copies = zeros((size_t)most, sizeof(int));
    }
    MPI_Type_contiguous(sizeof(struct sums), MPI_BYTE, &of_sums);
    MPI_Type_commit(&of_sums);
    MPI_Type_contiguous(sizeof(struct point), MPI_BYTE, &of_point);
    MPI_Type_commit(&of_point);
}

static int place_of(int point) {
    unsigned from = owner(point);
    if (from == self()) return point - begin_of(self());
    if (!copy_of[point]) {
        struct peer *p = &peers[from];
        copy_of[point] = own_points() + copies++;
        p->points[p->count] = point;
        p->copies[p->count++] = copy_of[point];
    }
    return copy_of[point];
}

static void built(void) {
    for (int to = 0; to < size; to++) {
        struct peer *p = &peers[to];
        MPI_Sendrecv(&p->count, 1, MPI_INT, to, 0, &p->given_count, 1, MPI_INT, to, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        size_t given = (size_t)p->given_count, count = (size_t)p->count;
        p->given = zeros(given, sizeof(int));
        MPI_Sendrecv(p->points, p->count, MPI_INT, to, 1, p->given, p->given_count, MPI_INT, to, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (size_t i = 0; i < given; i++) p->given[i] = place_of(p->given[i]);
        p->sums_out = zeros(count, sizeof *p->sums_out), p->sums_in = zeros(given, sizeof *p->sums_in);
        p->points_out = zeros(given, sizeof *p->points_out), p->points_in = zeros(count, sizeof *p->points_in);
    }
    updated();
}

static struct sums *merged(void) {
    int count = 0;
    for (int p = 0; p < size; p++)
        if (peers[p].given_count) MPI_Irecv(peers[p].sums_in, peers[p].given_count, of_sums, p, 2, MPI_COMM_WORLD, &requests[count++]);
    for (int p = 0; p < size; p++) {
        struct peer *to = &peers[p];
        if (!to->count) continue;
        for (int i = 0; i < to->count; i++) {
            to->sums_out[i] = sums[to->copies[i]];
            sums[to->copies[i]] = (struct sums){{0}};
        }
        MPI_Isend(to->sums_out, to->count, of_sums, p, 2, MPI_COMM_WORLD, &requests[count++]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int p = 0; p < size; p++)
        for (int i = 0; i < peers[p].given_count; i++) add_sums(&sums[peers[p].given[i]], &peers[p].sums_in[i]);
    return sums;
}

static void updated(void) {
    int count = 0;
    for (int p = 0; p < size; p++)
        if (peers[p].count) MPI_Irecv(peers[p].points_in, peers[p].count, of_point, p, 3, MPI_COMM_WORLD, &requests[count++]);
    for (int p = 0; p < size; p++) {
        if (!peers[p].given_count) continue;
        for (int i = 0; i < peers[p].given_count; i++) peers[p].points_out[i] = points[peers[p].given[i]];
        MPI_Isend(peers[p].points_out, peers[p].given_count, of_point, p, 3, MPI_COMM_WORLD, &requests[count++]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int p = 0; p < size; p++)
        for (int i = 0; i < peers[p].count; i++) points[peers[p].copies[i]] = peers[p].points_in[i];
}
