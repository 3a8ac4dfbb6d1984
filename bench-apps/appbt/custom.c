/* Appbt with a protocol of its own on tempest.h, the form `custom`, after section 2.4.2 of the thesis.
 *
 * Each row of lines that crosses has a channel, which ends where the receiver reads it; its coming is the notice. The values at a side of a block have one, too, and cross
 * once an iteration. There is no barrier, request or invalidation.
 * Nothing is overwritten before it is read: who sends a row has had the receiver's values of the iteration before, which it sent when it had read all rows. Who sends
 * values has had a row since.
 *
 * cc -O2 custom.c $(blizzard config --cflags) $(blizzard config --libs) -o appbt-custom && blizzard run -n 2 -- ./appbt-custom
 */
#define _GNU_SOURCE
#include "../common_shared.h"
#include <tempest.h>

#include "messages.h"

/* By dimension, whether the neighbour is above, and row; behind the rows, values: channels to the neighbour, and those from it. `missing` is what is expected
 * minus what has come. */
struct end {
    int channel;
    volatile int missing;
};
static struct end *out[DIMENSIONS][2], *in[DIMENSIONS][2];
static volatile int channels_missing, readers_missing;

static unsigned neighbour(int d, int above) { return next_to(d, above ? 1 : -1); }

static void wait_for(volatile int *missing, unsigned count) {
    if (count == 0) return;
    for (unsigned i = 1; i < count; i++) TPPI_atomic_incr(missing);
    TPPI_sleep(missing);
}

static void channel_arrives(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    int d = TPPI_recv_W(), above = TPPI_recv_W(), number = TPPI_recv_W();
    in[d][above][number].channel = TPPI_recv_W();
    TPPI_wakeup(&channels_missing);
}
static void reader_is_ready(TPPI_NodeId src, int size) { (void)src, (void)size, TPPI_wakeup(&readers_missing); }
static void data_arrives(TPPI_NodeId node, int channel) { TPPI_wakeup((volatile int *)TPPI_get_dst_channel_user_ptr(node, channel)); }

static void make_end(int d, int above, int number, double *buffer, size_t doubles) {
    struct end *end = &in[d][above][number];
    TPPI_set_channel_dst(neighbour(d, above), end->channel, buffer, (int)(doubles * sizeof *buffer), data_arrives);
    TPPI_set_dst_channel_user_ptr(neighbour(d, above), end->channel, (void *)&end->missing);
}

static void make(void) {
    make_private();
    unsigned neighbours = 0, channels = 0;
    for (int d = X; d < DIMENSIONS; d++)
        for (int above = 0; above < 2; above++) {
            out[d][above] = zeros((size_t)opt.side + 1, sizeof(struct end));
            in[d][above] = zeros((size_t)opt.side + 1, sizeof(struct end));
        }
    bz_barrier();
    for (int d = X; d < DIMENSIONS; d++)
        for (int above = 0; above < 2; above++) {
            if (!has_next(d, above)) continue;
            neighbours++;
            for (int row = from[row_of[d]]; row <= to[row_of[d]]; row++, channels++) {
                int number = row < to[row_of[d]] ? row : opt.side;
                struct end *end = &out[d][above][number];
                end->channel = TPPI_set_channel_src(neighbour(d, above), NULL);
                TPPI_send_WWWW(neighbour(d, above), channel_arrives, d, !above, number, end->channel);
            }
        }
    wait_for(&channels_missing, channels);
    for (int d = X; d < DIMENSIONS; d++)
        for (int above = 0; above < 2; above++) {
            if (!has_next(d, above)) continue;
            int way = above ? DOWN : UP;
            for (int row = from[row_of[d]]; row < to[row_of[d]]; row++) make_end(d, above, row, own_row(way, d, 0, row), own_row_doubles(way, d));
            make_end(d, above, opt.side, sides_in[d][above], side_doubles(d));
            TPPI_send(neighbour(d, above), reader_is_ready);
        }
    wait_for(&readers_missing, neighbours);
}

static void wait_for_row(int way, int d, int row) { TPPI_sleep(&in[d][way == DOWN][row].missing); }
static void row_is_done(int way, int d, int row) {
    int above = way == UP;
    TPPI_channel_send(neighbour(d, above), out[d][above][row].channel, own_row(way, d, 1, row), (int)(own_row_doubles(way, d) * sizeof(double)));
}

static void updated(void) {
    static int iterations;
    for (int d = X; d < DIMENSIONS; d++)
        for (int above = 0; above < 2; above++) {
            if (!has_next(d, above)) continue;
            for (int row = from[row_of[d]]; iterations && row < to[row_of[d]]; row++) TPPI_reset_channel(neighbour(d, above), in[d][above][row].channel);
            copy_side(d, above, 1, sides_out[d][above], 1);
            TPPI_channel_send(neighbour(d, above), out[d][above][opt.side].channel, sides_out[d][above], (int)(side_doubles(d) * sizeof(double)));
        }
    for (int d = X; d < DIMENSIONS; d++)
        for (int above = 0; above < 2; above++) {
            if (!has_next(d, above)) continue;
            TPPI_sleep(&in[d][above][opt.side].missing);
            copy_side(d, above, 0, sides_in[d][above], 0);
            TPPI_reset_channel(neighbour(d, above), in[d][above][opt.side].channel);
        }
    iterations++;
}
