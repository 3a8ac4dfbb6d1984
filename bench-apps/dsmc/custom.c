/* DSMC with a protocol of its own on tempest.h, the form `custom`, after section 2.4.4 of the thesis.
 *
 * Particles are in memory of their run node's own. One that leaves its cells goes in a message, together with others, to the run node that gets it. The
 * message's handler puts it into the buffer there. Handlers run one at a time, so there are no locks and no barriers: the last message of each run node
 * to each other says that it is the last of the iteration.
 *
 * cc -O2 custom.c $(blizzard config --cflags) $(blizzard config --libs) -lm -o dsmc-custom && blizzard run -n 2 -- ./dsmc-custom
 */
#define _GNU_SOURCE
#include "../common_shared.h"
#include <tempest.h>

#include "dsmc.h"

enum { AT_A_TIME = TPPI_PAGE_SIZE / sizeof(struct particle) };

/* For each other run node: what is to be sent. */
struct packet {
    int count;
    struct particle particles[AT_A_TIME];
};
static struct packet *packets;
/* What has come, and last messages that have not; in turn, because a run node may be an iteration ahead. */
static struct particle *came[2];
static size_t came_count[2];
static volatile int last_missing[2];
static int turn;

static void make(void) {
    particles = need(malloc(most() * sizeof *particles));
    moved = need(malloc(most() * sizeof *moved));
    packets = need(calloc(run_nodes(), sizeof *packets));
    for (int i = 0; i < 2; i++) came[i] = need(malloc(most() * sizeof **came));
    bz_barrier();
}

static void particles_arrive(TPPI_NodeId src, int size) {
    (void)src;
    int of = TPPI_recv_W(), is_last = TPPI_recv_W(), bytes = size - 2 * (int)sizeof(int);
    TPPI_recv_R(came[of] + came_count[of], bytes);
    came_count[of] += (size_t)bytes / sizeof **came;
    if (is_last) TPPI_wakeup(&last_missing[of]);
}

static void send_packet(unsigned owner, int is_last) {
    struct packet *packet = &packets[owner];
    TPPI_send_WWR(owner, particles_arrive, turn, is_last, packet->particles, packet->count * (int)sizeof *packet->particles);
    packet->count = 0;
}

static void give(unsigned owner, const struct particle *p) {
    struct packet *packet = &packets[owner];
    if (packet->count == AT_A_TIME) send_packet(owner, 0);
    packet->particles[packet->count++] = *p;
}

static void take(void) {
    if (run_nodes() == 1) return;
    for (unsigned node = 0; node < run_nodes(); node++)
        if (node != self()) send_packet(node, 1);
    for (unsigned i = 2; i < run_nodes(); i++) TPPI_atomic_incr(&last_missing[turn]);
    TPPI_sleep(&last_missing[turn]);
    for (size_t i = 0; i < came_count[turn]; i++) keep(&came[turn][i]);
    came_count[turn] = 0;
    turn = !turn;
}
