/* EM3D with a protocol of its own on tempest.h, the form `custom`, after section 2.4.1 of the thesis.
 *
 * The values are on pages of the user-managed segment, at the same address on all run nodes.
 * - The first iteration fetches: an access to a page of another run node faults, and its home sends the page.
 * - Then each run node looks through its edges and tells the homes which values it reads.
 * - From then on a home sends these, packed, over a channel to each reader at the end of the phase that writes them. A run node goes on
 *   when it has one message of each run node that it shares values with. There is no barrier, no request and no invalidation.
 * No message overtakes: whoever sends me values of one kind has read mine of the other.
 *
 * cc -O2 custom.c $(blizzard config --cflags) $(blizzard config --libs) -o em3d-custom && blizzard run -n 2 -- ./em3d-custom
 */
#define _GNU_SOURCE
#include "../common_shared.h"
#include <tempest.h>

#include "em3d.h"

enum { MODE = 1, AT_A_TIME = TPPI_PAGE_SIZE / sizeof(int), MOST = 64 };

/* Numbers of doubles from the segment's start. The list that a reader sends, and what goes over the channel. */
struct stream {
    int *values;
    int count;
    int channel;
    double *buffer;
};
/* By kind and run node: what I read of it; what it reads of mine. */
static struct stream reads[KINDS][MOST], gives[KINDS][MOST];
/* Run nodes that I share values with. */
static unsigned partners[MOST], partner_count;
/* What is expected minus what has come: lists, channels, and readers that are ready for them; values by kind. */
static volatile int lists_missing, channels_missing, readers_missing, values_missing[KINDS];
static int learnt, sent_before[KINDS];

static void *local_memory(size_t bytes) { return malloc(bytes ? bytes : 1); }

/* ---- Where values are ---- */

/* Each part of a kind has as many pages as the largest needs. */
static size_t pages_of_part(void) { return ((per_kind() / PARTS + 1) * sizeof(double) + TPPI_PAGE_SIZE - 1) / TPPI_PAGE_SIZE; }
static double *first_value(int kind, unsigned part) {
    return (double *)(TPPI_SEGMENT_BASE + ((size_t)kind * PARTS + part) * pages_of_part() * TPPI_PAGE_SIZE);
}
static unsigned home_at(const void *va) {
    size_t page = (size_t)((char *)va - TPPI_SEGMENT_BASE) / TPPI_PAGE_SIZE;
    return owner((unsigned)(page / pages_of_part() % PARTS));
}
static double *at(int number) { return (double *)TPPI_SEGMENT_BASE + (unsigned)number; }

static double *value_memory(int kind, unsigned part, uint64_t count) {
    (void)count;
    char *first = (char *)first_value(kind, part);
    for (size_t i = 0; i < pages_of_part(); i++)
        if (!TPPI_alloc_and_map(first + i * TPPI_PAGE_SIZE, MODE, TPPI_Blk_Writable, self(), NULL)) return NULL;
    return (double *)first;
}
static const double *neighbour(int kind, unsigned part, uint64_t index) { return first_value(kind, part) + index; }

/* ---- The first iteration ---- */

static char *page_at(int number) { return TPPI_SEGMENT_BASE + (size_t)number * TPPI_PAGE_SIZE; }

static void page_arrives(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    char *page = page_at(TPPI_recv_W());
    TPPI_recv_Ba(page, TPPI_PAGE_SIZE, TPPI_Blk_Validate_RW);
    TPPI_resume_va(page, TPPI_PAGE_SIZE);
}
static void page_is_wanted(TPPI_NodeId src, int size) {
    (void)size;
    int number = TPPI_recv_W();
    TPPI_send_WBa(src, page_arrives, number, page_at(number), TPPI_PAGE_SIZE, TPPI_Blk_No_Tag_Change);
}
/* A page that I read for the first time: fetched whole. Every edge is followed in the first iteration. Later nobody would send the page anew. */
static void page_fault(void *va, int pc, int is_write) {
    (void)pc;
    if (learnt || is_write) abort();
    int number = (int)((size_t)((char *)va - TPPI_SEGMENT_BASE) / TPPI_PAGE_SIZE);
    if (!TPPI_alloc_and_map(page_at(number), MODE, TPPI_Blk_Busy, home_at(va), NULL)) abort();
    TPPI_send_W(home_at(va), page_is_wanted, number);
}

static void placed(void) {
    if (run_nodes() > MOST || 2 * PARTS * pages_of_part() * TPPI_PAGE_SIZE > TPPI_SEGMENT_BYTES) {
        fprintf(stderr, "em3d: too many run nodes, or graph nodes\n");
        exit(2);
    }
    TPPI_register_page_fault_handler(page_fault);
}
static void built(void) { bz_barrier(); }

/* ---- What is learnt of it ---- */

static void wait_for(volatile int *missing, unsigned count) {
    if (count == 0) return;
    for (unsigned i = 1; i < count; i++) TPPI_atomic_incr(missing);
    TPPI_sleep(missing);
}

static size_t own_values(void) {
    size_t all = 0;
    for (unsigned part = 0; part < PARTS; part++)
        if (owner(part) == self()) all += part_begin(part + 1) - part_begin(part);
    return all;
}

/* The list of a reader, a message at a time. Its memory is there: a handler may run in the middle of malloc. */
static void list_arrives(TPPI_NodeId src, int size) {
    int kind = TPPI_recv_W(), last = TPPI_recv_W(), bytes = size - 2 * (int)sizeof(int);
    struct stream *s = &gives[kind][src];
    TPPI_recv_R(s->values + s->count, bytes);
    s->count += bytes / (int)sizeof(int);
    if (last) TPPI_wakeup(&lists_missing);
}
static void channel_arrives(TPPI_NodeId src, int size) {
    (void)size;
    int kind = TPPI_recv_W();
    reads[kind][src].channel = TPPI_recv_W();
    TPPI_wakeup(&channels_missing);
}
static void reader_is_ready(TPPI_NodeId src, int size) { (void)src, (void)size, TPPI_wakeup(&readers_missing); }
static void electric_arrives(TPPI_NodeId node, int channel) { (void)node, (void)channel, TPPI_wakeup(&values_missing[E]); }
static void magnetic_arrives(TPPI_NodeId node, int channel) { (void)node, (void)channel, TPPI_wakeup(&values_missing[H]); }

/* At least a word, so that there is a message. */
static int bytes_of(const struct stream *s) { return (s->count ? s->count : 1) * (int)sizeof(double); }

static void list_reads(int kind) {
    const double *first = first_value(kind, 0);
    char *seen = need(calloc(PARTS * pages_of_part(), TPPI_PAGE_SIZE / sizeof(double)));
    for (struct graph_node *n = list[!kind]; n != NULL; n = n->next)
        for (int i = 0; i < n->edge_count; i++) seen[n->neighbours[i] - first] = 1;
    for (unsigned node = 0; node < run_nodes(); node++) reads[kind][node].values = need(local_memory(per_kind() * sizeof(int)));
    for (unsigned part = 0; part < PARTS; part++) {
        if (owner(part) == self()) continue;
        struct stream *s = &reads[kind][owner(part)];
        size_t begin = (size_t)(first_value(kind, part) - first), count = part_begin(part + 1) - part_begin(part);
        for (size_t i = begin; i < begin + count; i++)
            if (seen[i]) s->values[s->count++] = (int)(first + i - (double *)TPPI_SEGMENT_BASE);
    }
    free(seen);
}

static void learn(void) {
    unsigned others = run_nodes() - 1;
    for (int kind = E; kind < KINDS; kind++) {
        list_reads(kind);
        for (unsigned node = 0; node <= others; node++) gives[kind][node].values = need(local_memory(own_values() * sizeof(int)));
    }
    learnt = 1;
    bz_barrier();
    for (int kind = E; kind < KINDS; kind++)
        for (unsigned node = 0; node <= others; node++) {
            struct stream *s = &reads[kind][node];
            for (int i = 0, more = node != self(); more; i += AT_A_TIME) {
                int count = s->count - i < AT_A_TIME ? s->count - i : AT_A_TIME;
                more = i + count < s->count;
                TPPI_send_WWR(node, list_arrives, kind, !more, s->values + i, count * (int)sizeof(int));
            }
        }
    wait_for(&lists_missing, KINDS * others);

    for (unsigned node = 0; node <= others; node++) {
        if (!(reads[E][node].count | reads[H][node].count | gives[E][node].count | gives[H][node].count)) continue;
        partners[partner_count++] = node;
        for (int kind = E; kind < KINDS; kind++) {
            struct stream *s = &gives[kind][node];
            s->buffer = need(calloc(1, (size_t)bytes_of(s)));
            s->channel = TPPI_set_channel_src(node, NULL);
            TPPI_send_WW(node, channel_arrives, kind, s->channel);
        }
    }
    wait_for(&channels_missing, KINDS * partner_count);
    for (unsigned i = 0; i < partner_count; i++) {
        for (int kind = E; kind < KINDS; kind++) {
            struct stream *s = &reads[kind][partners[i]];
            s->buffer = need(local_memory((size_t)bytes_of(s)));
            TPPI_set_channel_dst(partners[i], s->channel, s->buffer, bytes_of(s), kind == E ? electric_arrives : magnetic_arrives);
        }
        TPPI_send(partners[i], reader_is_ready);
    }
    wait_for(&readers_missing, partner_count);
}

/* ---- The other iterations ---- */

static void update(int kind) {
    for (unsigned i = 0; i < partner_count; i++) {
        struct stream *s = &gives[kind][partners[i]];
        /* The reader has taken the values before; then it has sent me its own, which I have. */
        while (sent_before[kind] && !TPPI_is_channel_reset(partners[i], s->channel)) {}
        for (int k = 0; k < s->count; k++) s->buffer[k] = *at(s->values[k]);
        TPPI_channel_send(partners[i], s->channel, s->buffer, bytes_of(s));
    }
    sent_before[kind] = 1;
    wait_for(&values_missing[kind], partner_count);
    for (unsigned i = 0; i < partner_count; i++) {
        struct stream *s = &reads[kind][partners[i]];
        for (int k = 0; k < s->count; k++) *at(s->values[k]) = s->buffer[k];
        TPPI_reset_channel_notify(partners[i], s->channel);
    }
}

static void computed(int kind) {
    static int iterations;
    if (run_nodes() == 1) return;
    if (iterations++ == 0) {
        /* Nobody has the new values: the next phase fetches them. */
        bz_barrier();
        return;
    }
    if (!learnt) learn();
    update(kind);
}
