/* Moldyn with a protocol of its own on tempest.h, the form `custom`, after section 2.4.5 of the thesis.
 *
 * Nothing is fetched. Each run node has all positions, and all forces that it has added, in memory of its own; pieces of both arrays go from node to node
 * over virtual channels.
 * - Forces: each run node adds what it has to a piece and sends it on to the one before it, until it comes to its owner. Who has its own piece knows that all
 *   have read all positions.
 * - Positions: each run node sends its own piece to the one before it, which sends it on, until all have it. Each piece has a channel, from its place to
 *   the same place of the next node.
 *
 * cc -O2 custom.c $(blizzard config --cflags) $(blizzard config --libs) -lm -o moldyn-custom && blizzard run -n 2 -- ./moldyn-custom
 */
#define _GNU_SOURCE
#include "../common_shared.h"

#include "moldyn.h"

#include <tempest.h>

enum { MOST = 64 };

/* To the run node before, and from the one behind: of positions by piece, and of pieces of forces. */
static int out[MOST + 1], in[MOST + 1], channels;
static struct force *piece_out, *piece_in;
/* What is expected minus what has come. */
static volatile int channel_missing, reader_missing, piece_missing, taken_missing, positions_missing;

static unsigned before(void) { return (self() + run_nodes() - 1) % run_nodes(); }
static unsigned behind(void) { return (self() + 1) % run_nodes(); }

static void channel_arrives(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    in[channels++] = TPPI_recv_W();
    TPPI_wakeup(&channel_missing);
}
static void reader_is_ready(TPPI_NodeId src, int size) { (void)src, (void)size, TPPI_wakeup(&reader_missing); }
static void piece_arrives(TPPI_NodeId node, int channel) { (void)node, (void)channel, TPPI_wakeup(&piece_missing); }
static void piece_is_taken(TPPI_NodeId src, int size) { (void)src, (void)size, TPPI_wakeup(&taken_missing); }
static void positions_arrive(TPPI_NodeId node, int channel) { (void)node, (void)channel, TPPI_wakeup(&positions_missing); }

/* All pieces of forces are as long as the longest. */
static size_t most(void) { return (size_t)(molecules() / (int)run_nodes() + 1); }
static int piece_bytes(void) { return (int)(most() * sizeof(struct force)); }
static int position_bytes(unsigned piece) { return (int)((size_t)(begin_of(piece + 1) - begin_of(piece)) * sizeof(struct vector)); }

static void make(void) {
    unsigned nodes = run_nodes();
    positions = zeros((size_t)molecules(), sizeof *positions);
    forces = zeros((size_t)molecules(), sizeof *forces);
    if (nodes == 1) return;
    if (nodes > MOST) {
        fprintf(stderr, "moldyn: too many run nodes\n");
        exit(2);
    }
    piece_out = zeros(most(), sizeof *piece_out);
    piece_in = zeros(most(), sizeof *piece_in);
    for (unsigned channel = 0; channel <= nodes; channel++) {
        out[channel] = TPPI_set_channel_src(before(), NULL);
        TPPI_send_W(before(), channel_arrives, out[channel]);
    }
    for (unsigned channel = 0; channel <= nodes; channel++) TPPI_sleep(&channel_missing);
    for (unsigned piece = 0; piece < nodes; piece++)
        TPPI_set_channel_dst(behind(), in[piece], &positions[begin_of(piece)], position_bytes(piece), positions_arrive);
    TPPI_set_channel_dst(behind(), in[nodes], piece_in, piece_bytes(), piece_arrives);
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
            TPPI_reset_channel(behind(), in[nodes]);
            TPPI_send(behind(), piece_is_taken);
            /* What I sent in the phase before: piece_out is free again. */
            TPPI_sleep(&taken_missing);
        }
        if (phase == nodes - 1) break;
        memcpy(piece_out, mine, (size_t)count * sizeof *mine);
        memset(mine, 0, (size_t)count * sizeof *mine);
        TPPI_channel_send(before(), out[nodes], piece_out, piece_bytes());
    }
    return forces;
}

/* Channels are used again when forces have been merged: by then the one before has reset its ends. */
static void moved(void) {
    unsigned nodes = run_nodes();
    for (unsigned step = 1; step < nodes; step++) {
        unsigned mine = (self() + step - 1) % nodes, next = (self() + step) % nodes;
        TPPI_channel_send(before(), out[mine], &positions[begin_of(mine)], position_bytes(mine));
        TPPI_sleep(&positions_missing);
        TPPI_reset_channel(behind(), in[next]);
    }
}
