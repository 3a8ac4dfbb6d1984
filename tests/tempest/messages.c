//# nodes: 1 2 3 5
/* Fine-grain messaging: sections 2 and 3.3. */
#include "check.h"

static volatile int got, sum;
static volatile unsigned long long from_mask;

static void count(TPPI_NodeId src, int size) {
    EXPECT("3.3.3", size == 0);
    from_mask |= 1ull << src;
    got++;
}

/* A message without a body, to everybody, oneself included. */
static void empty(void) {
    for (TPPI_NodeId n = 0; n < TPPI_num_nodes; n++)
        TPPI_send(n, count);
    WAIT_UNTIL(got == (int)TPPI_num_nodes);
    EXPECT("3.3.2", from_mask == (1ull << TPPI_num_nodes) - 1);
    bz_barrier();
}

/* 3.3.2, 3.3.3: items of all types; what was sent with one type may be read with others, since the body is a stream of words. */
static volatile int mixed_done;
static int region[40];
static void mixed(TPPI_NodeId src, int size) {
    int out[40];
    EXPECT("3.3.3", size == 4 + 64 + 4 + 160 + 4 + 4);
    EXPECT("3.3.2", TPPI_recv_W() == -7);
    TPPI_recv_Ba(block(50, 3) + 9, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RO);
    EXPECT("3.2.6", TPPI_get_blk_acc(block(50, 3)) == TPPI_Blk_ReadOnly);
    EXPECT("3.3.2", load(block(50, 3) + 60) == 1015 + (int)src);
    EXPECT("3.3.2", TPPI_recv_W() == 0x7fffffff);
    TPPI_recv_R(out, 80);
    for (int i = 0; i < 20; i++)
        EXPECT("3.3.2", out[i] == i * i + (int)src && TPPI_recv_W() == (i + 20) * (i + 20) + (int)src);
    EXPECT("3.3.2", TPPI_recv_W() == 11 && TPPI_recv_W() == 12);
    mixed_done++;
}
static void items(void) {
    TPPI_NodeId next = (TPPI_self_address + 1) % TPPI_num_nodes;
    TPPI_alloc_and_map(page(50), 1, TPPI_Blk_Invalid, 0, 0);
    TPPI_alloc_and_map(page(51), 1, TPPI_Blk_Writable, 0, 0);
    bz_barrier();
    for (int i = 0; i < 40; i++) region[i] = i * i + (int)TPPI_self_address;
    for (int i = 0; i < 16; i++) store(block(51, 2) + 4 * i, 1000 + i + (int)TPPI_self_address);
    TPPI_send_list(next, mixed, TPPI_item_W(-7), TPPI_item_Ba(block(51, 2) + 1, TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalidate),
                   TPPI_item_W(0x7fffffff), TPPI_item_R(region, sizeof region), TPPI_item_W(11), TPPI_item_W(12));
    EXPECT("3.2.6", TPPI_get_blk_acc(block(51, 2)) == TPPI_Blk_Invalid && TPPI_get_blk_acc(block(51, 3)) == TPPI_Blk_Writable);
    WAIT_UNTIL(mixed_done == 1);
    bz_barrier();
}

/* 3.3.4: every length up to the limit. */
static volatile int longest, bytes_seen;
static void any_length(TPPI_NodeId src, int size) {
    static int in[TPPI_MAX_AM_BYTES / 4];
    TPPI_recv_R(in, size);
    int wrong = 0;
    for (int i = 0; i < size / 4; i++) wrong += in[i] != size * 31 + i * 7 + (int)src;
    EXPECT("3.3.4", wrong == 0);
    longest = size > longest ? size : longest;
    bytes_seen++;
}
static void lengths(void) {
    static int out[TPPI_MAX_AM_BYTES / 4];
    int sent = 0;
    for (int size = 0; size <= TPPI_MAX_AM_BYTES; size += size < 300 ? 4 : 100) {
        for (int i = 0; i < size / 4; i++) out[i] = size * 31 + i * 7 + (int)TPPI_self_address;
        TPPI_send_R((TPPI_self_address + 1) % TPPI_num_nodes, any_length, out, size);
        sent++;
    }
    WAIT_UNTIL(bytes_seen == sent);
    EXPECT("3.3.4", longest >= TPPI_MAX_AM_BYTES - 100);
    bz_barrier();
}

/* The generated functions pass their arguments in order. */
static volatile int lists_done;
static void five_words(TPPI_NodeId src, int size) {
    (void)src;
    for (int i = 1; i <= size / 4; i++)
        EXPECT("3.3.2", TPPI_recv_W() == i);
    lists_done++;
}
static void lists(void) {
    int r[4] = {2, 3, 4, 5};
    TPPI_NodeId next = (TPPI_self_address + 1) % TPPI_num_nodes;
    TPPI_send_W(next, five_words, 1);
    TPPI_send_WWWWW(next, five_words, 1, 2, 3, 4, 5);
    TPPI_send_WRW(next, five_words, 1, r, 16, 6);
    TPPI_send_WWWWWWWWWWWWWWWW(next, five_words, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
    for (int i = 0; i < 16; i++) store(block(51, 9) + 4 * i, i + 5);
    TPPI_send_WWWWBa(next, five_words, 1, 2, 3, 4, block(51, 9), TPPI_TAG_BLK_SIZE, TPPI_Blk_No_Tag_Change);
    WAIT_UNTIL(lists_done == 5);
    bz_barrier();
}

/* 3.3.2, F: data of the received message is sent on. */
static volatile int round_trips;
static void hop(TPPI_NodeId src, int size) {
    (void)src;
    int left = TPPI_recv_W(), first = TPPI_recv_W();
    if (left == 0) {
        EXPECT("3.3.2", first == (int)TPPI_self_address);
        for (int i = 0; i < size / 4 - 2; i++)
            EXPECT("3.3.2", TPPI_recv_W() == i * 5);
        round_trips++;
    } else if (left % 2)
        TPPI_send_WWF((TPPI_self_address + 1) % TPPI_num_nodes, hop, left - 1, first, size - 8);
    else
        TPPI_send_WWFF((TPPI_self_address + 1) % TPPI_num_nodes, hop, left - 1, first, 40, size - 48);
}
static void forwarding(void) {
    int data[60];
    for (int i = 0; i < 60; i++) data[i] = i * 5;
    TPPI_send_WWR((TPPI_self_address + 1) % TPPI_num_nodes, hop, (int)(4 * TPPI_num_nodes - 1), (int)TPPI_self_address, data, sizeof data);
    WAIT_UNTIL(round_trips == 1);
    bz_barrier();
}

/* Section 2: handlers run one at a time and to their ends, in the order of sending. */
static volatile int inside, next_number[64], in_order = 1, echoes;
static void echo(TPPI_NodeId src, int size) {
    EXPECT("3.3.3", src == TPPI_self_address && size == 0 && inside == 0);
    echoes++;
}
static void one_at_a_time(TPPI_NodeId src, int size) {
    (void)size;
    EXPECT("2", inside == 0);
    inside = 1;
    int number = TPPI_recv_W();
    in_order &= number == next_number[src]++;
    for (volatile int i = 0; i < 200; i++) /* Polls in the loop must not run the next one. */
        ;
    TPPI_send(TPPI_self_address, echo);
    EXPECT("2", inside == 1);
    inside = 0;
}
static void serially(void) {
    enum { MESSAGES = 400 };
    for (int i = 0; i < MESSAGES; i++)
        for (TPPI_NodeId n = 0; n < TPPI_num_nodes; n++)
            TPPI_send_W(n, one_at_a_time, i);
    WAIT_UNTIL(echoes == MESSAGES * (int)TPPI_num_nodes);
    EXPECT("2", in_order);
    bz_barrier();
}

/* Handlers may send without limit: each message makes two until there are thousands, more than any ring holds. */
static void breed(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    int generation = TPPI_recv_W();
    int filler[20];
    if (size > 4) TPPI_recv_R(filler, size - 4);
    sum++;
    if (generation > 0) {
        TPPI_send_WR((TPPI_self_address + 1) % TPPI_num_nodes, breed, generation - 1, filler, size - 4);
        TPPI_send_WR((TPPI_self_address + TPPI_num_nodes - 1) % TPPI_num_nodes, breed, generation - 1, filler, size - 4);
    }
}
static void breeding(void) {
    enum { GENERATIONS = 11 };
    int filler[20] = {0};
    if (TPPI_self_address == 0) TPPI_send_WR(TPPI_num_nodes - 1, breed, GENERATIONS, filler, sizeof filler);
    uint64_t total;
    do
        total = bz_reduce_sum_u64((uint64_t)sum); /* Handlers run while a node waits. */
    while (total < (1u << (GENERATIONS + 1)) - 1);
    EXPECT("3.3", total == (1u << (GENERATIONS + 1)) - 1);
    bz_barrier();
}

/* A region in memory of bz_alloc. */
static volatile int from_shared;
static void take(TPPI_NodeId src, int size) {
    int in[64];
    TPPI_recv_R(in, size);
    for (int i = 0; i < 64; i++) EXPECT("3.3.2", in[i] == i + 100);
    (void)src;
    from_shared++;
}
static void coherent_regions(void) {
    if (TPPI_self_address == 0) bz_publish(1, bz_alloc(4096));
    int *shared = bz_lookup(1);
    if (TPPI_self_address == TPPI_num_nodes - 1)
        for (int i = 0; i < 64; i++) shared[i] = i + 100;
    bz_barrier();
    TPPI_send_R((TPPI_self_address + 1) % TPPI_num_nodes, take, shared, 256);
    WAIT_UNTIL(from_shared == 1);
    bz_barrier();
}

/* A shared-memory protocol in little: the home answers requests while it computes or waits; the fault ends when the answer is there. */
static void answer(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    int number = TPPI_recv_W();
    TPPI_recv_Ba(block(60, number), TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RO);
    TPPI_resume_va(block(60, number), TPPI_TAG_BLK_SIZE);
}
static void request(TPPI_NodeId src, int size) {
    (void)size;
    int number = TPPI_recv_W();
    TPPI_send_WBa(src, answer, number, block(60, number), TPPI_TAG_BLK_SIZE, TPPI_Blk_No_Tag_Change);
}
static void fetch(void *va, void *usr_ptr, TPPI_NodeId home) {
    (void)usr_ptr;
    TPPI_change_blk_acc(va, TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalid_To_Busy);
    TPPI_send_W(home, request, (int)(((char *)va - page(60)) / TPPI_TAG_BLK_SIZE));
}
static void protocol(void) {
    TPPI_register_blk_acc_fault_handler(3, TPPI_Blk_Invalid, TPPI_ReadAccess, fetch);
    TPPI_alloc_and_map(page(60), 3, TPPI_self_address == 0 ? TPPI_Blk_Writable : TPPI_Blk_Invalid, 0, 0);
    if (TPPI_self_address == 0)
        for (int i = 0; i < 1024; i++) store(page(60) + 4 * i, i * 3);
    bz_barrier();
    for (int i = 1023; i >= 0; i--)
        EXPECT("3.1.4", load(page(60) + 4 * i) == i * 3);
    bz_barrier();
}

int main(void) {
    bz_barrier();
    empty();
    items();
    lengths();
    lists();
    forwarding();
    serially();
    breeding();
    coherent_regions();
    protocol();
    return done();
}
