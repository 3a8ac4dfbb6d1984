//# nodes: 1 2 3
/* Bulk data transfer: section 3.4; A.2.4 of the thesis for the functions that the specification's text lacks. */
#include "check.h"

/* The runtime moves pieces of 8192 words, and has room for 16 at once. */
enum { WORDS = 100000, PIECE = 8192, LARGE = 40 * PIECE + 5 };
static unsigned out[LARGE], in[LARGE];
static volatile int sent, received, channel_from_peer = -1;
static volatile TPPI_NodeId sent_node, received_node;
static volatile int sent_channel = -1, received_channel = -1;

static void on_sent(TPPI_NodeId node, int channel) { sent++, sent_node = node, sent_channel = channel; }
static void on_received(TPPI_NodeId node, int channel) { received++, received_node = node, received_channel = channel; }
static void tell_channel(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    channel_from_peer = TPPI_recv_W();
}
static volatile int may_send;
static void go(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    may_send++;
}

static unsigned value(TPPI_NodeId from, int round, int i) { return from * 1000003u + (unsigned)round * 7919u + (unsigned)i * 31u; }

/* A source that does nothing for its transfer for a while: one instruction, so no poll. */
static int is_away;
static void be_away(void) {
    static char memory[1 << 24];
    for (int i = 0; is_away && i < 3; i++) {
        void *at = memory;
        size_t bytes = sizeof memory;
        __asm__ volatile("rep stosb" : "+D"(at), "+c"(bytes) : "a"(i) : "memory");
    }
}

/* Everybody sends to the next node; with callbacks or with polling, with or without notification. */
static void transfers(int callbacks, int notify, int words, int rounds, unsigned *buffer) {
    TPPI_NodeId me = TPPI_self_address, next = (me + 1) % TPPI_num_nodes, last = (me + TPPI_num_nodes - 1) % TPPI_num_nodes;
    channel_from_peer = -1;
    may_send = 0;
    /* The peer may be ahead: its data may be here before this node begins a round. */
    int sent_before = sent, received_before = received;
    bz_barrier();
    int c = TPPI_set_channel_src(next, callbacks ? on_sent : 0);
    EXPECT("3.4.4", TPPI_get_src_channel_user_ptr(next, c) == 0);
    TPPI_set_src_channel_user_ptr(next, c, out);
    TPPI_send_W(next, tell_channel, c);
    WAIT_UNTIL(channel_from_peer >= 0);
    int d = channel_from_peer;
    if (notify)
        EXPECT("3.4.1", TPPI_set_channel_dst_notify(last, d, buffer, words * 4, callbacks ? on_received : 0));
    else {
        EXPECT("3.4.1", TPPI_set_channel_dst(last, d, buffer, words * 4, callbacks ? on_received : 0));
        TPPI_send(last, go);
    }
    TPPI_set_dst_channel_user_ptr(last, d, in);
    if (notify)
        WAIT_UNTIL(TPPI_is_channel_estd(next, c));
    else
        WAIT_UNTIL(may_send == 1);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < words; i++) out[i] = value(me, round, i);
        TPPI_channel_send(next, c, out, words * 4);
        be_away();
        if (callbacks) {
            WAIT_UNTIL(received == received_before + round + 1);
            EXPECT("3.4.1", received_node == last && received_channel == d);
        } else
            WAIT_UNTIL(TPPI_is_channel_ready(last, d));
        EXPECT("3.4.2", TPPI_is_channel_ready(last, d) && TPPI_is_channel_ready(last, d));
        int wrong = 0;
        for (int i = 0; i < words; i++) wrong += buffer[i] != value(last, round, i);
        EXPECT("3.4.2", wrong == 0);
        if (callbacks) {
            WAIT_UNTIL(sent == sent_before + round + 1);
            EXPECT("3.4.1", sent_node == next && sent_channel == c);
        }
        EXPECT("3.4.2", !TPPI_is_channel_reset(next, c) || notify);
        if (notify) {
            TPPI_reset_channel_notify(last, d);
            WAIT_UNTIL(TPPI_is_channel_reset(next, c));
        } else {
            TPPI_reset_channel(last, d);
        }
        EXPECT("3.4.2", !TPPI_is_channel_ready(last, d)); /* The next send comes after the barrier. */
        bz_barrier();
    }
    EXPECT("3.4.4", TPPI_get_src_channel_user_ptr(next, c) == out && TPPI_get_dst_channel_user_ptr(last, d) == in);
    TPPI_destroy_channel_src(next, c);
    TPPI_destroy_channel_dst(last, d);
    bz_barrier();
}

/* Several channels between the same nodes at once, and numbers that are used again. */
static void several(void) {
    TPPI_NodeId me = TPPI_self_address, next = (me + 1) % TPPI_num_nodes, last = (me + TPPI_num_nodes - 1) % TPPI_num_nodes;
    int a = TPPI_set_channel_src(next, 0), b = TPPI_set_channel_src(next, 0);
    EXPECT("3.4.1", a != b && a >= 0 && b >= 0);
    /* SPMD: the peer has made the same calls, so its numbers are the same. */
    bz_barrier();
    TPPI_set_channel_dst(last, a, in, 400, 0);
    TPPI_set_channel_dst(last, b, in + 1000, 0, 0); /* No bytes are a transfer, too. */
    bz_barrier();
    for (int i = 0; i < 100; i++) out[i] = value(me, 9, i);
    TPPI_channel_send(next, b, out, 0);
    TPPI_channel_send(next, a, out, 400);
    WAIT_UNTIL(TPPI_is_channel_ready(last, a) && TPPI_is_channel_ready(last, b));
    for (int i = 0; i < 100; i++) EXPECT("3.4.2", in[i] == value(last, 9, i));
    bz_barrier();
    TPPI_destroy_channel_src(next, a);
    TPPI_destroy_channel_dst(last, a);
    EXPECT("3.4.3", TPPI_set_channel_src(next, 0) == a);
    bz_barrier();
}

/* Several transfers that are large, at once: one of them goes through the staging area, and the others do not, or wait for it. */
static void at_once(void) {
    enum { CHANNELS = 3, EACH = 12 * PIECE + 7 };
    static unsigned from[CHANNELS][EACH], to[CHANNELS][EACH];
    TPPI_NodeId me = TPPI_self_address, next = (me + 1) % TPPI_num_nodes, last = (me + TPPI_num_nodes - 1) % TPPI_num_nodes;
    int channels[CHANNELS];
    for (int k = 0; k < CHANNELS; k++) channels[k] = TPPI_set_channel_src(next, on_sent);
    bz_barrier();
    for (int k = 0; k < CHANNELS; k++) TPPI_set_channel_dst(last, channels[k], to[k], EACH * 4, 0);
    for (int round = 0; round < 3; round++) {
        int sent_before = sent;
        for (int k = 0; k < CHANNELS; k++)
            for (int i = 0; i < EACH; i++) from[k][i] = value(me, round + 7 * k, i);
        bz_barrier();
        for (int k = 0; k < CHANNELS; k++) TPPI_channel_send(next, channels[k], from[k], EACH * 4);
        for (int k = 0; k < CHANNELS; k++) WAIT_UNTIL(TPPI_is_channel_ready(last, channels[k]));
        int wrong = 0;
        for (int k = 0; k < CHANNELS; k++)
            for (int i = 0; i < EACH; i++) wrong += to[k][i] != value(last, round + 7 * k, i);
        EXPECT("3.4.2", wrong == 0);
        WAIT_UNTIL(sent == sent_before + CHANNELS);
        for (int k = 0; k < CHANNELS; k++) TPPI_reset_channel(last, channels[k]);
        bz_barrier();
    }
    for (int k = 0; k < CHANNELS; k++) TPPI_destroy_channel_src(next, channels[k]), TPPI_destroy_channel_dst(last, channels[k]);
    bz_barrier();
}

/* Tags of user-managed pages do not matter and do not change. */
static void tagged(void) {
    unsigned *pages = (unsigned *)page(100);
    for (int p = 0; p < 100; p++) EXPECT("3.1.3", TPPI_alloc_and_map(page(100 + p), 1, p % 2 ? TPPI_Blk_Busy : TPPI_Blk_Writable, 0, 0));
    for (int p = 1; p < 100; p += 2) TPPI_change_blk_acc(page(100 + p), TPPI_PAGE_SIZE, TPPI_Blk_Validate_RO);
    transfers(0, 1, WORDS, 2, pages);
    for (int p = 0; p < 100; p++)
        EXPECT("3.4.2", TPPI_get_blk_acc(page(100 + p)) == (p % 2 ? TPPI_Blk_ReadOnly : TPPI_Blk_Writable));
}

int main(void) {
    EXPECT("3.4.5", TPPI_MAX_CHANNEL_BYTES >= 1 << 20);
    transfers(1, 0, 1000, 5, in);
    transfers(0, 0, 17, 5, in);
    transfers(1, 1, WORDS, 5, in);
    transfers(0, 1, WORDS, 3, in);
    for (int words = PIECE - 1; words <= PIECE + 1; words++) transfers(words & 1, 1, words, 2, in);
    transfers(1, 0, 16 * PIECE, 3, in);
    transfers(1, 1, LARGE, 3, in);
    is_away = 1;
    transfers(1, 1, LARGE, 3, in);
    transfers(0, 0, WORDS, 2, in);
    is_away = 0;
    several();
    at_once();
    tagged();
    return done();
}
