/* migratory.cpp - an invalidation protocol with detection of migratory data, of the program's own, in C++ on tempest.h.
 *
 * Superblocks of 256 bytes. A page's home keeps for each of them who has it; requests for one that is on its way wait in a queue there. A block whose
 * reader became its writer before is migratory: from then on a reader gets it to store to at once (Cox and Fowler, 1993). A timer gives
 * back blocks at random, so that what the home asks for and what comes by itself cross each other.
 *
 * c++ -O2 migratory.cpp $(blizzard config --cflags --libs) -o migratory && blizzard run -n 4 ./migratory [ROUNDS]
 */
#include <blizzard.h>
#include <tempest.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <tuple>
#include <vector>

namespace {

constexpr int SUPER = 256, PAGES = 12, PER_PAGE = TPPI_PAGE_SIZE / SUPER, BLOCKS = PAGES * PER_PAGE, NOBODY = -1;
enum Mode : TPPI_PageMode { AT_HOME = 3, AWAY = 17 };
enum Kind { READ, WRITE };

char *at(int block) { return TPPI_SEGMENT_BASE + (long)block * SUPER; }
int block_of(void *va) { return (int)(((char *)va - TPPI_SEGMENT_BASE) / SUPER); }
TPPI_NodeId home_of(int block) { return (TPPI_NodeId)(block / PER_PAGE) % TPPI_num_nodes; }

struct Entry {
    int owner = NOBODY, reader = NOBODY;
    uint64_t sharers = 0;
    bool busy = false, migratory = false;
    int acks = 0;
    TPPI_NodeId who = 0;
    Kind what = READ;
    std::deque<std::pair<TPPI_NodeId, Kind>> queue;
};
std::vector<Entry> directory(BLOCKS);
struct Counts { unsigned faults[5], pages, timers, crossed, migrations, given_back; } counts;
volatile bool stopped;

void granted(TPPI_NodeId src, int size);
void granted_here(TPPI_NodeId src, int size);
void recalled(TPPI_NodeId src, int size);
void invalidated(TPPI_NodeId src, int size);
void proceed(int block);

void grant(int block) {
    Entry &e = directory[block];
    bool write = e.what == WRITE;
    if (write) e.owner = e.who == TPPI_self_address ? NOBODY : (int)e.who, e.sharers = 0;
    else if (e.who != TPPI_self_address) e.sharers |= 1ull << e.who;
    if (e.who == TPPI_self_address) {
        TPPI_send_WW(e.who, granted_here, block, write);
        // Until the home has had its turn, nobody else gets the block.
        return;
    }
    // The home may wait in the queue itself.
    bool waits = TPPI_get_blk_acc(at(block)) == TPPI_Blk_Busy;
    if (write) TPPI_send_WWBa(e.who, granted, block, write, at(block), SUPER, waits ? TPPI_Blk_No_Tag_Change : TPPI_Blk_Invalidate);
    else {
        if (TPPI_get_blk_acc(at(block)) == TPPI_Blk_Writable) TPPI_change_blk_acc(at(block), SUPER, TPPI_Blk_Downgrade_RO);
        TPPI_send_WWBa(e.who, granted, block, write, at(block), SUPER, TPPI_Blk_No_Tag_Change);
    }
    e.busy = false;
}

void proceed(int block) {
    Entry &e = directory[block];
    while (!e.busy && !e.queue.empty()) {
        std::tie(e.who, e.what) = e.queue.front();
        e.queue.pop_front();
        e.busy = true;
        if (e.what == READ) {
            if (e.migratory) e.what = WRITE, counts.migrations++;
            e.reader = (int)e.who;
        } else {
            // The last reader becomes the writer, and took the block from another one.
            e.migratory = e.reader == (int)e.who && e.owner == NOBODY;
        }
        if (e.owner != NOBODY) {
            TPPI_send_WW((TPPI_NodeId)e.owner, recalled, block, e.what);
            continue;
        }
        e.acks = 0;
        if (e.what == WRITE)
            for (TPPI_NodeId n = 0; n < TPPI_num_nodes; n++)
                if ((e.sharers >> n & 1) && n != e.who) e.acks++, TPPI_send_W(n, invalidated, block);
        if (e.acks == 0) grant(block);
    }
}

void wanted(TPPI_NodeId src, int) {
    int block = TPPI_recv_W(), kind = TPPI_recv_W();
    directory[block].queue.emplace_back(src, (Kind)kind);
    proceed(block);
}
void acked(TPPI_NodeId src, int) {
    int block = TPPI_recv_W();
    Entry &e = directory[block];
    e.sharers &= ~(1ull << src);
    if (--e.acks == 0) grant(block), proceed(block);
}
/* A block comes back with its data: kind READ: its owner keeps a copy. */
void returned(TPPI_NodeId src, int) {
    int block = TPPI_recv_W(), keeps = TPPI_recv_W();
    Entry &e = directory[block];
    if (e.owner != (int)src) abort();
    TPPI_BlkAccTag tag = TPPI_get_blk_acc(at(block));
    TPPI_recv_Ba(at(block), SUPER, tag == TPPI_Blk_Busy ? TPPI_Blk_No_Tag_Change : TPPI_Blk_Validate_RO);
    e.owner = NOBODY;
    e.sharers = keeps ? 1ull << src : 0;
    if (!e.busy) return;
    // It may have been given back while it was asked for with a copy left: all copies but the requester's go.
    if (e.what == WRITE && keeps && src != e.who) e.acks = 1, TPPI_send_W(src, invalidated, block);
    else grant(block), proceed(block);
}

/* ---- Elsewhere ---- */
void recalled(TPPI_NodeId home, int) {
    int block = TPPI_recv_W(), kind = TPPI_recv_W();
    if (TPPI_get_blk_acc(at(block)) != TPPI_Blk_Writable) { counts.crossed++; return; }
    TPPI_send_WWBa(home, returned, block, kind == READ, at(block), SUPER, kind == READ ? TPPI_Blk_Downgrade_RO : TPPI_Blk_Invalidate);
}
void invalidated(TPPI_NodeId home, int) {
    int block = TPPI_recv_W();
    if (TPPI_get_blk_acc(at(block)) == TPPI_Blk_ReadOnly) TPPI_change_blk_acc(at(block), SUPER, TPPI_Blk_Invalidate);
    TPPI_send_W(home, acked, block);
}
void granted(TPPI_NodeId, int) {
    int block = TPPI_recv_W(), write = TPPI_recv_W();
    TPPI_recv_Ba(at(block), SUPER, write ? TPPI_Blk_Validate_RW : TPPI_Blk_Validate_RO);
    TPPI_resume_va(at(block), SUPER);
}
void granted_here(TPPI_NodeId, int) {
    int block = TPPI_recv_W(), write = TPPI_recv_W();
    TPPI_change_blk_acc(at(block), SUPER, write ? TPPI_Blk_Validate_RW : TPPI_Blk_Validate_RO);
    TPPI_resume_va(at(block), SUPER);
    directory[block].busy = false;
    proceed(block);
}
void ask(int block, Kind kind) {
    TPPI_change_blk_acc(at(block), SUPER, TPPI_Blk_Invalid_To_Busy);
    TPPI_send_WW(home_of(block), wanted, block, kind);
}

/* ---- Faults ---- */
void page_fault(void *va, int, int) {
    int block = block_of(va);
    counts.pages++;
    char *page = at(block / PER_PAGE * PER_PAGE);
    if (!TPPI_alloc_and_map(page, AWAY, TPPI_Blk_Invalid, home_of(block), page + 1)) abort();
    TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);
}
template <int WHICH, Kind KIND> void invalid(void *va, void *user, TPPI_NodeId home) {
    int block = block_of(va);
    counts.faults[WHICH]++;
    if (home != home_of(block) || (home != TPPI_self_address && user != at(block / PER_PAGE * PER_PAGE) + 1)) abort();
    ask(block, KIND);
}
/* What was asked for ahead is on its way. */
template <int WHICH> void busy(void *, void *, TPPI_NodeId) { counts.faults[WHICH]++; }
void read_only(void *va, void *, TPPI_NodeId) {
    int block = block_of(va);
    counts.faults[4]++;
    TPPI_change_blk_acc(at(block), SUPER, TPPI_Blk_Invalidate);
    ask(block, WRITE);
}
unsigned random_state = 1;
unsigned draw(unsigned below) {
    random_state = random_state * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)random_state * below >> 32);
}
void tick(void *user) {
    counts.timers++;
    for (int i = 0; i < 4; i++) {
        int block = (int)draw(BLOCKS);
        if (home_of(block) != TPPI_self_address && TPPI_get_blk_acc(at(block)) == TPPI_Blk_Writable) {
            counts.given_back++;
            TPPI_send_WWBa(home_of(block), returned, block, 0, at(block), SUPER, TPPI_Blk_Invalidate);
        }
    }
    if (!stopped) TPPI_schedule_timer(50 + (int)draw(200), tick, user);
}

/* ---- Bulk: node 0 gets a copy of each node's sums ---- */
int channel_of[64];
void channel(TPPI_NodeId src, int) { channel_of[src] = TPPI_recv_W() + 1; }
int results[64][4];
volatile int results_here, sent;
void result_is_here(TPPI_NodeId, int) { results_here++; }
void was_sent(TPPI_NodeId, int) { sent++; }

}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 300;
    unsigned me = TPPI_self_address, nodes = TPPI_num_nodes;
    random_state = me * 77 + 5;
    TPPI_register_page_fault_handler(page_fault);
    for (Mode mode : {AT_HOME, AWAY}) {
        TPPI_register_blk_acc_fault_handler(mode, TPPI_Blk_Invalid, TPPI_ReadAccess, invalid<0, READ>);
        TPPI_register_blk_acc_fault_handler(mode, TPPI_Blk_Invalid, TPPI_WriteAccess, invalid<1, WRITE>);
        TPPI_register_blk_acc_fault_handler(mode, TPPI_Blk_Busy, TPPI_ReadAccess, busy<2>);
        TPPI_register_blk_acc_fault_handler(mode, TPPI_Blk_Busy, TPPI_WriteAccess, busy<3>);
        TPPI_register_blk_acc_fault_handler(mode, TPPI_Blk_ReadOnly, TPPI_WriteAccess, read_only);
    }
    for (int page = 0; page < PAGES; page++)
        if (home_of(page * PER_PAGE) == me && !TPPI_alloc_and_map(at(page * PER_PAGE), AT_HOME, TPPI_Blk_Writable, me, nullptr)) return 2;
    bz_lock_t *locks[8];
    for (unsigned i = 0; i < 8; i++) {
        if (me == 0) bz_publish(i, bz_lock_new());
        locks[i] = (bz_lock_t *)bz_lookup(i);
    }
    bz_barrier();
    TPPI_schedule_timer(100, tick, nullptr);

    /* Counters that migrate, a word of each node's own in every block, and reads of everybody's words, which only grow. */
    volatile uint64_t (*words)[SUPER / 8] = (volatile uint64_t (*)[SUPER / 8])TPPI_SEGMENT_BASE;
    std::vector<uint64_t> seen(BLOCKS * 8);
    uint64_t mine = 0;
    for (long round = 0; round < rounds; round++) {
        unsigned which = draw(8), first = draw(BLOCKS - 8);
        bz_lock(locks[which]);
        words[which * 11][20 + which]++;
        words[which * 11 + 1][20]++;
        bz_unlock(locks[which]);
        if (round % 3 == 0)
            for (unsigned b = first; b < first + 4; b++)
                if (TPPI_get_page_info(at((int)b), nullptr) == 1 && TPPI_get_blk_acc(at((int)b)) == TPPI_Blk_Invalid) ask((int)b, b & 1 ? WRITE : READ);
        for (unsigned b = first; b < first + 8; b++) {
            unsigned other = draw(nodes < 16 ? nodes : 16);
            if (b & 1) { words[b][me]++; mine++; }
            uint64_t value = words[b][other];
            if (other < 8 && value < seen[b * 8 + other]) { printf("node %u: block %u went back\n", me, b); return 1; }
            if (other < 8) seen[b * 8 + other] = value;
        }
    }
    stopped = true;
    bz_barrier();
    uint64_t sum = 0, shared = 0;
    for (int b = 0; b < BLOCKS; b++) sum += words[b][me];
    for (int i = 0; i < 8; i++) shared += words[i * 11][20 + i];
    bool good = sum == mine && shared == (uint64_t)rounds * nodes;

    /* Everybody's results, in bulk. */
    static int result[4];
    result[0] = (int)sum, result[1] = (int)shared, result[2] = good, result[3] = (int)(counts.faults[0] > 0 || nodes == 1);
    int number = TPPI_set_channel_src(0, was_sent);
    TPPI_send_W(0, channel, number);
    if (me == 0)
        for (unsigned n = 0; n < nodes; n++) {
            while (!((volatile int *)channel_of)[n]) {}
            TPPI_set_channel_dst_notify(n, channel_of[n] - 1, results[n], sizeof result, result_is_here);
        }
    while (!TPPI_is_channel_estd(0, number)) {}
    TPPI_channel_send(0, number, result, sizeof result);
    while (!sent) {}
    if (me == 0) {
        while (results_here < (int)nodes) {}
        int all = 1;
        for (unsigned n = 0; n < nodes; n++) all &= results[n][2] & results[n][3];
        printf("%d counters\n%s\n", results[0][1] / (int)nodes, all ? "right" : "wrong");
    }
    bz_barrier();
    if (getenv("COUNTS"))
        printf("node %u: faults %u %u %u %u %u pages %u timers %u crossed %u migrations %u given back %u\n", me, counts.faults[0], counts.faults[1], counts.faults[2], counts.faults[3],
               counts.faults[4], counts.pages, counts.timers, counts.crossed, counts.migrations, counts.given_back);
    return good ? 0 : 1;
}
