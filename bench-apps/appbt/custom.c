/* Appbt with a protocol of its own on tempest.h, the form `custom`, after section 2.4.2 of the thesis.
 *
 * What crosses with a row of lines goes in messages straight to where the receiver reads it, and their coming is the notice. So do the values at the sides of a block,
 * once an iteration. There is no barrier, request or invalidation.
 * No message overtakes what is read: who sends a row anew has had the receiver's values of the iteration before, which it sent when it had read all rows.
 *
 * cc -O2 custom.c $(blizzard config --cflags) $(blizzard config --libs) -o appbt-custom && blizzard run -n 2 -- ./appbt-custom
 */
#define _GNU_SOURCE
#include <blizzard.h>
#include <tempest.h>

#include "messages.h"

enum { AT_A_TIME = TPPI_PAGE_SIZE / sizeof(double) };

/* What is expected minus what has come, in messages: of rows, and of sides. */
static volatile int *rows_missing[WAYS][DIMENSIONS], sides_missing[DIMENSIONS][2];

static unsigned self(void) { return bz_node(); }
static unsigned run_nodes(void) { return bz_nodes(); }
static void begin_run(int *argc, char ***argv) { (void)argc, (void)argv; }
static void end_run(void) { bz_barrier(); }

static void make(void) {
    make_private();
    for (int way = UP; way < WAYS; way++)
        for (int d = X; d < DIMENSIONS; d++) rows_missing[way][d] = zeros((size_t)opt.side, sizeof(int));
    bz_barrier();
}

static void row_arrives(TPPI_NodeId src, int size) {
    (void)src;
    int way = TPPI_recv_W(), d = TPPI_recv_W(), row = TPPI_recv_W(), first = TPPI_recv_W();
    TPPI_recv_R(own_row(way, d, 0, row) + first, size - 4 * (int)sizeof(int));
    TPPI_wakeup(&rows_missing[way][d][row]);
}
static void side_arrives(TPPI_NodeId src, int size) {
    (void)src;
    int d = TPPI_recv_W(), above = TPPI_recv_W(), first = TPPI_recv_W();
    TPPI_recv_R(sides_in[d][above] + first, size - 3 * (int)sizeof(int));
    TPPI_wakeup(&sides_missing[d][above]);
}

static void wait_for(volatile int *missing, size_t doubles) {
    for (size_t i = AT_A_TIME; i < doubles; i += AT_A_TIME) TPPI_atomic_incr(missing);
    TPPI_sleep(missing);
}
static int bytes_at(size_t first, size_t doubles) {
    return (int)((doubles - first < AT_A_TIME ? doubles - first : AT_A_TIME) * sizeof(double));
}

static void wait_for_row(int way, int d, int row) { wait_for(&rows_missing[way][d][row], own_row_doubles(way, d)); }
static void row_is_done(int way, int d, int row) {
    double *out = own_row(way, d, 1, row);
    unsigned other = next_to(d, way == UP ? 1 : -1);
    for (size_t i = 0, doubles = own_row_doubles(way, d); i < doubles; i += AT_A_TIME)
        TPPI_send_WWWWR(other, row_arrives, way, d, row, (int)i, out + i, bytes_at(i, doubles));
}

static void updated(void) {
    for (int d = X; d < DIMENSIONS; d++)
        for (int above = 0; above < 2; above++) {
            if (!has_next(d, above)) continue;
            copy_side(d, above, 1, sides_out[d][above], 1);
            for (size_t i = 0, doubles = side_doubles(d); i < doubles; i += AT_A_TIME)
                TPPI_send_WWWR(next_to(d, above ? 1 : -1), side_arrives, d, !above, (int)i, sides_out[d][above] + i, bytes_at(i, doubles));
        }
    for (int d = X; d < DIMENSIONS; d++)
        for (int above = 0; above < 2; above++) {
            if (!has_next(d, above)) continue;
            wait_for(&sides_missing[d][above], side_doubles(d));
            copy_side(d, above, 0, sides_in[d][above], 0);
        }
}

static uint64_t sum_of_all(uint64_t value) { return bz_reduce_sum_u64(value); }
