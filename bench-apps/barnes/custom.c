/* Barnes with a protocol of its own on tempest.h, the form `custom`, after section 2.4.3 of the thesis.
 *
 * The tree is shared memory, as in the form `tuned`. Each run node has a copy of all bodies. When its own have moved, it sends them to all others over channels; who has those of all
 * others goes on.
 *
 * cc -O2 custom.c $(blizzard config --cflags) $(blizzard config --libs) -lm -o barnes-custom && blizzard run -n 2 -- ./barnes-custom
 */
#define _GNU_SOURCE
#define TUNED
#include "shared.h"

#include <tempest.h>

enum { MOST = 64 };

/* By run node: the channel to it, and the one from it. */
static int out[MOST], in[MOST];
/* What is expected minus what has come. */
static volatile int channels_missing, readers_missing, bodies_missing;

static void wait_for(volatile int *missing) {
    if (run_nodes() == 1) return;
    for (unsigned i = 2; i < run_nodes(); i++) TPPI_atomic_incr(missing);
    TPPI_sleep(missing);
}

static void channel_arrives(TPPI_NodeId src, int size) {
    (void)size;
    in[src] = TPPI_recv_W();
    TPPI_wakeup(&channels_missing);
}
static void reader_is_ready(TPPI_NodeId src, int size) { (void)src, (void)size, TPPI_wakeup(&readers_missing); }
static void bodies_arrive(TPPI_NodeId node, int channel) { (void)node, (void)channel, TPPI_wakeup(&bodies_missing); }

static int bytes_of(unsigned node) { return (int)((begin_of(node + 1) - begin_of(node)) * sizeof *bodies); }

static void make(void) {
    if (run_nodes() > MOST || run_nodes() > opt.bodies) {
        fprintf(stderr, "barnes: too many run nodes\n");
        exit(2);
    }
    make_tree();
    bodies = zeros(opt.bodies, sizeof *bodies);
    for (unsigned node = 0; node < run_nodes(); node++) {
        if (node == self()) continue;
        out[node] = TPPI_set_channel_src(node, NULL);
        TPPI_send_W(node, channel_arrives, out[node]);
    }
    wait_for(&channels_missing);
    for (unsigned node = 0; node < run_nodes(); node++) {
        if (node == self()) continue;
        TPPI_set_channel_dst(node, in[node], bodies + begin_of(node), bytes_of(node), bodies_arrive);
        TPPI_send(node, reader_is_ready);
    }
    wait_for(&readers_missing);
}

/* All have gone through a barrier since they read the bodies before, and have made their channels ready in front of it. */
static void moved(void) {
    for (unsigned node = 0; node < run_nodes(); node++)
        if (node != self()) TPPI_channel_send(node, out[node], bodies + own_begin, bytes_of(self()));
    wait_for(&bodies_missing);
    for (unsigned node = 0; node < run_nodes(); node++)
        if (node != self()) TPPI_reset_channel(node, in[node]);
}
