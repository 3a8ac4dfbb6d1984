/* Moldyn with a protocol of its own on tempest.h, the form `custom`, after section 2.4.5 of the thesis.
 *
 * Positions are shared memory, as in the form `tuned`. The pieces of the array of forces go from node to node over virtual channels: each run node adds what it has
 * and sends the piece on to the one before it, until it comes to its owner. Who has its own piece knows that all have read all positions.
 *
 * cc -O2 custom.c $(blizzard config --cflags) $(blizzard config --libs) -lm -o moldyn-custom && blizzard run -n 2 -- ./moldyn-custom
 */
#define _GNU_SOURCE
#define TUNED
#include "shared.h"

#include <tempest.h>

/* The channel to the run node before, and the one from the run node behind. The pieces are sent and come here. */
static int out, in;
static struct force *piece_out, *piece_in;
/* What is expected minus what has come. */
static volatile int channel_missing, reader_missing, piece_missing, taken_missing;

static unsigned before(void) { return (self() + run_nodes() - 1) % run_nodes(); }
static unsigned behind(void) { return (self() + 1) % run_nodes(); }

static void channel_arrives(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    in = TPPI_recv_W();
    TPPI_wakeup(&channel_missing);
}
static void reader_is_ready(TPPI_NodeId src, int size) { (void)src, (void)size, TPPI_wakeup(&reader_missing); }
static void piece_arrives(TPPI_NodeId node, int channel) { (void)node, (void)channel, TPPI_wakeup(&piece_missing); }
static void piece_is_taken(TPPI_NodeId src, int size) { (void)src, (void)size, TPPI_wakeup(&taken_missing); }

/* All pieces are as long as the longest. */
static size_t most(void) { return (size_t)(molecules() / (int)run_nodes() + 1); }
static int piece_bytes(void) { return (int)(most() * sizeof(struct force)); }

static void make(void) {
    make_shared();
    if (run_nodes() == 1) return;
    piece_out = zeros(most(), sizeof *piece_out);
    piece_in = zeros(most(), sizeof *piece_in);
    out = TPPI_set_channel_src(before(), NULL);
    TPPI_send_W(before(), channel_arrives, out);
    TPPI_sleep(&channel_missing);
    TPPI_set_channel_dst(behind(), in, piece_in, piece_bytes(), piece_arrives);
    TPPI_send(behind(), reader_is_ready);
    TPPI_sleep(&reader_missing);
}

static struct force *merged(void) {
    unsigned nodes = run_nodes();
    for (unsigned phase = 0; phase < nodes && nodes > 1; phase++) {
        unsigned piece = (self() + phase + 1) % nodes;
        struct force *mine = forces + begin_of(piece);
        int count = begin_of(piece + 1) - begin_of(piece);
        if (phase > 0) {
            TPPI_sleep(&piece_missing);
            for (int m = 0; m < count; m++) add_force(&mine[m], &piece_in[m]);
            TPPI_reset_channel(behind(), in);
            TPPI_send(behind(), piece_is_taken);
            /* What I sent in the phase before: piece_out is free again. */
            TPPI_sleep(&taken_missing);
        }
        if (phase == nodes - 1) break;
        memcpy(piece_out, mine, (size_t)count * sizeof *mine);
        memset(mine, 0, (size_t)count * sizeof *mine);
        TPPI_channel_send(before(), out, piece_out, piece_bytes());
    }
    return forces;
}
