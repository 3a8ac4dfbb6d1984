/* Unstructured with protocols of its own on tempest.h, the form `custom`, after section 2.4.6 of the thesis.
 *
 * The points are on pages of the user-managed segment, at the same address on all run nodes. The mesh says before the iterations who needs which points of
 * others. Every two run nodes that share points have a channel each way for sums, which go to the owner, and one each way for
 * points, which go to those who need them. An iteration has these messages, and no barrier, request or invalidation: who waits for a message waits for its sender.
 *
 * cc -O2 custom.c $(blizzard config --cflags) $(blizzard config --libs) -lm -o unstructured-custom && blizzard run -n 2 -- ./unstructured-custom
 */
#define _GNU_SOURCE
#include "../common_shared.h"
#include <tempest.h>

#include "unstructured.h"

enum { MODE = 1, MOST = 64, PER_PAGE = TPPI_PAGE_SIZE / sizeof(struct point), AT_A_TIME = TPPI_PAGE_SIZE / sizeof(int) };
enum { SUMS, POINTS, KINDS };

/* What I share with a run node, as places: its points that I need, and mine that it needs. */
struct list {
    int *places;
    int count;
};
static struct list needs[MOST], gives[MOST];
/* By kind and run node: channel and buffer of what I send, and of what I get. */
struct end {
    int channel;
    void *buffer;
    int bytes;
};
static struct end out[KINDS][MOST], in[KINDS][MOST];
static unsigned partners[MOST], partner_count;
/* Points of others that are needed already, by place. */
static char *is_needed;
/* What is expected minus what has come. */
static volatile int lists_missing, channels_missing, readers_missing, missing[KINDS];

/* ---- Where points are: those of a run node begin at a page ---- */

static int first_place(unsigned node) {
    int place = 0;
    for (unsigned before = 0; before < node; before++)
        place += (begin_of(before + 1) - begin_of(before) + (int)PER_PAGE - 1) / (int)PER_PAGE * (int)PER_PAGE;
    return place;
}

static void map_pages(int from, int to, unsigned home) {
    for (int place = from; place < to; place += (int)PER_PAGE)
        if (!TPPI_alloc_and_map(&points[place], MODE, home == self() ? TPPI_Blk_Writable : TPPI_Blk_Invalid, home, NULL)) need(NULL);
}

static void make_points(void) {
    if (run_nodes() > MOST || (size_t)first_place(run_nodes()) * sizeof *points > TPPI_SEGMENT_BYTES) {
        fprintf(stderr, "unstructured: too many run nodes, or points\n");
        exit(2);
    }
    points = (struct point *)TPPI_SEGMENT_BASE;
    sums = zeros((size_t)first_place(run_nodes()), sizeof *sums);
    is_needed = zeros((size_t)first_place(run_nodes()), 1);
    /* A run node may be told of needs before it has looked at its own part of the mesh. */
    for (unsigned node = 0; node < run_nodes(); node++) {
        map_pages(first_place(node), first_place(node) + begin_of(node + 1) - begin_of(node), node);
        needs[node].places = zeros((size_t)(begin_of(node + 1) - begin_of(node)), sizeof(int));
        gives[node].places = zeros((size_t)own_points(), sizeof(int));
    }
    bz_barrier();
}

static int place_of(int point) {
    unsigned home = owner(point);
    int place = first_place(home) + point - begin_of(home);
    if (home != self() && !is_needed[place]) {
        is_needed[place] = 1;
        needs[home].places[needs[home].count++] = place;
        TPPI_BlkAccTag tag = TPPI_get_blk_acc(&points[place]);
        /* The channels fill it. An access to any other point of a run node faults, and ends the run: it would never be brought up to date. */
        if (tag == TPPI_Blk_Invalid) TPPI_change_blk_acc(&points[place], TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RW);
    }
    return place;
}

/* ---- Before the iterations: lists and channels ---- */

static void wait_for(volatile int *missing, unsigned count) {
    if (count == 0) return;
    for (unsigned i = 1; i < count; i++) TPPI_atomic_incr(missing);
    TPPI_sleep(missing);
}

static void list_arrives(TPPI_NodeId src, int size) {
    int last = TPPI_recv_W(), bytes = size - (int)sizeof(int);
    TPPI_recv_R(gives[src].places + gives[src].count, bytes);
    gives[src].count += bytes / (int)sizeof(int);
    if (last) TPPI_wakeup(&lists_missing);
}
static void channel_arrives(TPPI_NodeId src, int size) {
    (void)size;
    int kind = TPPI_recv_W();
    in[kind][src].channel = TPPI_recv_W();
    TPPI_wakeup(&channels_missing);
}
static void reader_is_ready(TPPI_NodeId src, int size) { (void)src, (void)size, TPPI_wakeup(&readers_missing); }
static void sums_arrive(TPPI_NodeId node, int channel) { (void)node, (void)channel, TPPI_wakeup(&missing[SUMS]); }
static void points_arrive(TPPI_NodeId node, int channel) { (void)node, (void)channel, TPPI_wakeup(&missing[POINTS]); }

static void make_end(struct end *end, int count, size_t bytes) {
    /* At least one, so that there is a message. */
    end->bytes = (count ? count : 1) * (int)bytes;
    end->buffer = zeros(1, (size_t)end->bytes);
}

static void built(void) {
    for (unsigned node = 0; node < run_nodes(); node++)
        for (int i = 0, more = node != self(); more; i += (int)AT_A_TIME) {
            int count = needs[node].count - i < (int)AT_A_TIME ? needs[node].count - i : (int)AT_A_TIME;
            more = i + count < needs[node].count;
            TPPI_send_WR(node, list_arrives, !more, needs[node].places + i, count * (int)sizeof(int));
        }
    wait_for(&lists_missing, run_nodes() - 1);
    for (unsigned node = 0; node < run_nodes(); node++) {
        if (!needs[node].count && !gives[node].count) continue;
        partners[partner_count++] = node;
        make_end(&out[SUMS][node], needs[node].count, sizeof *sums);
        make_end(&in[SUMS][node], gives[node].count, sizeof *sums);
        make_end(&out[POINTS][node], gives[node].count, sizeof *points);
        make_end(&in[POINTS][node], needs[node].count, sizeof *points);
        for (int kind = SUMS; kind < KINDS; kind++) {
            out[kind][node].channel = TPPI_set_channel_src(node, NULL);
            TPPI_send_WW(node, channel_arrives, kind, out[kind][node].channel);
        }
    }
    wait_for(&channels_missing, KINDS * partner_count);
    for (unsigned i = 0; i < partner_count; i++) {
        for (int kind = SUMS; kind < KINDS; kind++) {
            struct end *end = &in[kind][partners[i]];
            TPPI_set_channel_dst(partners[i], end->channel, end->buffer, end->bytes, kind == SUMS ? sums_arrive : points_arrive);
        }
        TPPI_send(partners[i], reader_is_ready);
    }
    wait_for(&readers_missing, partner_count);
    updated();
}

/* ---- The iterations ---- */

static int sent_before[KINDS];

/* Each partner has had the message before: it has answered with one of the other kind since. */
static void send_all(int kind) {
    for (unsigned i = 0; i < partner_count; i++) {
        struct end *end = &out[kind][partners[i]];
        while (sent_before[kind] && !TPPI_is_channel_reset(partners[i], end->channel)) {}
        const struct list *list = kind == SUMS ? &needs[partners[i]] : &gives[partners[i]];
        for (int k = 0; k < list->count; k++) {
            int place = list->places[k];
            if (kind == POINTS) {
                ((struct point *)end->buffer)[k] = points[place];
            } else {
                ((struct sums *)end->buffer)[k] = sums[place];
                sums[place] = (struct sums){{0}};
            }
        }
        TPPI_channel_send(partners[i], end->channel, end->buffer, end->bytes);
    }
    sent_before[kind] = 1;
    wait_for(&missing[kind], partner_count);
}

static struct sums *merged(void) {
    send_all(SUMS);
    for (unsigned i = 0; i < partner_count; i++) {
        const struct sums *came = in[SUMS][partners[i]].buffer;
        const struct list *list = &gives[partners[i]];
        for (int k = 0; k < list->count; k++) add_sums(&sums[list->places[k]], &came[k]);
        TPPI_reset_channel_notify(partners[i], in[SUMS][partners[i]].channel);
    }
    return sums;
}

static void updated(void) {
    send_all(POINTS);
    for (unsigned i = 0; i < partner_count; i++) {
        const struct point *came = in[POINTS][partners[i]].buffer;
        const struct list *list = &needs[partners[i]];
        for (int k = 0; k < list->count; k++) points[list->places[k]] = came[k];
        TPPI_reset_channel_notify(partners[i], in[POINTS][partners[i]].channel);
    }
}
