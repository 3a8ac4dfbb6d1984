/* The program that `blizzard bench am` and `blizzard bench bulk` run on two nodes: messages and bulk data of tempest.h. Node 1 asks, node 0
 * answers. See bench.h.
 */
#include "bench.h"
#include <tempest.h>

/* ---- short messages ---- */

/* When each step of the request was over at node 0, which has no other way to say so: three words for each message of a batch. */
enum { STAMPS = FREE, STAMP_WORDS = 3 };
/* Words of a runtime with instruments (rt/src/instruments.rs), or none. */
static const volatile uint64_t *instruments;
enum { SENT = 2, RECEIVED = 3 };

static volatile int waiting;
static uint64_t handler_began, reply_received;

static inline void stamp_home(int i, int word, uint64_t time) { raw_store(STAMPS + (uint64_t)(i * STAMP_WORDS + word) * 8, time); }

static void on_reply(TPPI_NodeId from, int size) {
    (void)from, (void)size;
    if (instruments)
        handler_began = now(), reply_received = instruments[RECEIVED];
    (void)TPPI_recv_W();
    TPPI_wakeup(&waiting);
}

static void on_request(TPPI_NodeId from, int size) {
    (void)size;
    uint64_t began = instruments ? now() : 0;
    int i = TPPI_recv_W();
    uint64_t received = instruments ? instruments[RECEIVED] : 0;
    TPPI_send_W(from, on_reply, i);
    if (instruments)
        stamp_home(i, 0, received), stamp_home(i, 1, began), stamp_home(i, 2, instruments[SENT]);
}

static void ask(int i) {
    TPPI_send_W(0, on_request, i);
    TPPI_sleep(&waiting);
}

/* One batch of requests and replies; node 0 spins in a barrier or computes. */
static void requests(int home_computes, const char *name, int is_warm) {
    static uint64_t number;
    number++;
    bz_barrier();
    if (node == 0) {
        if (home_computes)
            compute_until(number, is_warm);
    } else {
        uint64_t begin = now();
        for (int i = 0; i < BATCH; i++)
            ask(i);
        uint64_t end = now();
        tell(STOP, number);
        if (is_warm)
            record(name, end - begin, BATCH);
    }
    bz_barrier();
}

/* One batch of requests and replies, step by step. */
static void request_steps(int is_warm) {
    static const char *const names[] = {"call", "request", "start", "handle", "reply", "start_reply", "return"};
    enum { STEPS = 7 };
    static uint64_t times[BATCH][STEPS + 1];
    bz_barrier();
    if (node == 1)
        for (int i = 0; i < BATCH; i++) {
            times[i][0] = now();
            TPPI_send_W(0, on_request, i);
            times[i][1] = instruments[SENT];
            TPPI_sleep(&waiting);
            times[i][7] = now();
            times[i][5] = reply_received, times[i][6] = handler_began;
        }
    bz_barrier();
    if (node == 1 && is_warm) {
        for (int i = 0; i < BATCH; i++) {
            for (int word = 0; word < STAMP_WORDS; word++)
                times[i][2 + word] = raw_load(STAMPS + (uint64_t)(i * STAMP_WORDS + word) * 8);
            for (int k = 0; k < STEPS; k++)
                fprintf(results, "step_%s %lld\n", names[k], (long long)(times[i][k + 1] - times[i][k]));
            record("step_total", times[i][STEPS] - times[i][0], 1);
        }
        record_stamp();
    }
}

/* ---- one after the other, without replies ---- */

enum { STREAM = 4096, SLOTS = 128, SLOT = 128 };
/* A ring like the runtime's, with nothing but the cache line that a short message moves. */
enum { RING = FREE + 4096, TAKEN = RING - 128 };

static void on_item(TPPI_NodeId from, int size) {
    static unsigned long arrived;
    (void)size;
    (void)TPPI_recv_W();
    if (++arrived % STREAM == 0)
        TPPI_send_W(from, on_reply, 0);
}

/* One batch of messages that nobody answers but the last; from the first send until that answer is there. */
static void stream(int is_warm) {
    bz_barrier();
    if (node == 1) {
        uint64_t begin = now();
        for (int i = 0; i < STREAM; i++)
            TPPI_send_W(0, on_item, i);
        TPPI_sleep(&waiting);
        uint64_t end = now();
        if (is_warm)
            record("stream", end - begin, STREAM);
    }
    bz_barrier();
}

/* The same through lines of memory: a sequence number and 56 bytes of it, read by the receiver; it says every 16 messages how far it is. */
static void raw_stream(int is_warm) {
    static uint64_t sent, taken, limit;
    static uint64_t sum;
    bz_barrier();
    uint64_t begin = now();
    for (int i = 0; i < STREAM; i++) {
        uint64_t at = RING + (node == 1 ? sent : taken) % SLOTS * SLOT;
        if (node == 1) {
            while (sent - limit == SLOTS)
                limit = raw_load(TAKEN);
            for (int word = 1; word < 8; word++)
                raw_store(at + (uint64_t)word * 8, sent);
            raw_store(at, ++sent);
        } else {
            while (raw_load(at) != taken + 1)
                _mm_pause();
            for (int word = 1; word < 8; word++)
                sum += raw_load(at + (uint64_t)word * 8);
            if (++taken % 16 == 0)
                raw_store(TAKEN, taken);
        }
    }
    if (node == 1) {
        while (raw_load(TAKEN) != sent)
            _mm_pause();
        uint64_t end = now();
        if (is_warm)
            record("raw_stream", end - begin, STREAM);
    }
    bz_barrier();
}

/* The same on two hosts: as many bytes in one piece over TCP; a line comes back when all are there. */
static void far_stream(int is_warm) {
    static char all[STREAM * FAR_LINE];
    bz_barrier();
    uint64_t begin = now();
    if (node == 1)
        far_require(far_give(far_peer, all, sizeof all) && far_take(far_peer, all, FAR_LINE));
    else
        far_require(far_take(far_peer, all, sizeof all) && far_give(far_peer, all, FAR_LINE));
    uint64_t end = now();
    if (node == 1 && is_warm)
        record("raw_stream", end - begin, STREAM);
    bz_barrier();
}

static void bench_messages(uint64_t batches) {
    const char *words = find_argument("steps");
    instruments = words ? (const volatile uint64_t *)strtoull(words, 0, 0) : 0;
    for (uint64_t batch = 0; batch < batches + warm_up; batch++) {
        int is_warm = batch >= warm_up;
        if (instruments) {
            request_steps(is_warm);
            continue;
        }
        ping_pong(is_warm);
        requests(0, "request_reply", is_warm);
        requests(1, "request_reply_computing", is_warm);
        if (far_peer >= 0)
            far_stream(is_warm);
        else
            raw_stream(is_warm);
        stream(is_warm);
    }
}

/* ---- bulk data ---- */

enum { SMALLEST = 4 << 10, LARGEST = 4 << 20, SIZES = 6, BULK = FREE + (64 << 10) };

/* Copies `bytes` bytes from offset `from` of the memory of both processes to `to`, with nothing in between: by the string instruction, or in
 * pieces of 16 bytes. */
static void raw_copy(char *to, uint64_t from, uint64_t bytes, int by_pieces) {
    if (!by_pieces) {
        /* Checked, because its destination cannot be relative to fs: once, for all of it. */
        const char *at = raw_base + from;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(at), "+c"(bytes) : : "memory");
        return;
    }
    uint64_t source = from_fs(raw_base + from), target = from_fs(to);
    for (uint64_t at = 0; at < bytes; at += 64)
        __asm__ volatile("movdqu %%fs:(%0), %%xmm0\n\tmovdqu %%fs:16(%0), %%xmm1\n\t"
                         "movdqu %%fs:32(%0), %%xmm2\n\tmovdqu %%fs:48(%0), %%xmm3\n\t"
                         "movdqu %%xmm0, %%fs:(%1)\n\tmovdqu %%xmm1, %%fs:16(%1)\n\t"
                         "movdqu %%xmm2, %%fs:32(%1)\n\tmovdqu %%xmm3, %%fs:48(%1)"
                         :
                         : "r"(source + at), "r"(target + at)
                         : "memory", "xmm0", "xmm1", "xmm2", "xmm3");
}

static char *buffer;
static int channels[SIZES];

static void on_data(TPPI_NodeId from, int number) {
    (void)from, (void)number;
    TPPI_wakeup(&waiting);
}

/* Node 1 asks for the transfer of a size. */
static void on_go(TPPI_NodeId from, int size) {
    (void)size;
    int which = TPPI_recv_W();
    TPPI_channel_send(from, channels[which], buffer, SMALLEST << 2 * which);
}

/* Node 0 has made a channel. */
static void on_channel(TPPI_NodeId from, int size) {
    (void)size;
    int which = TPPI_recv_W();
    channels[which] = TPPI_recv_W();
    TPPI_set_channel_dst(from, channels[which], buffer, SMALLEST << 2 * which, on_data);
}

/* The floor: a copy of memory that node 0 has just written. */
static void copies(uint64_t number, uint64_t bytes, int by_pieces, const char *kind, int is_warm) {
    if (node == 0)
        for (uint64_t at = 0; at < bytes; at += 8)
            raw_store(BULK + at, number);
    bz_barrier();
    if (node == 1) {
        uint64_t begin = now();
        raw_copy(buffer, BULK, bytes, by_pieces);
        uint64_t end = now();
        char name[32];
        snprintf(name, sizeof name, "%s_%lu", kind, (unsigned long)bytes);
        if (is_warm)
            record(name, end - begin, 1);
    }
    bz_barrier();
}

/* The floor on two hosts: the same bytes over TCP, from asking for them until they are there. */
static void far_copies(uint64_t bytes, int is_warm) {
    char line[FAR_LINE] = {0};
    bz_barrier();
    if (node == 1) {
        uint64_t begin = now();
        far_require(far_give(far_peer, line, sizeof line) && far_take(far_peer, buffer, bytes));
        uint64_t end = now();
        char name[32];
        snprintf(name, sizeof name, "stream_%lu", (unsigned long)bytes);
        if (is_warm)
            record(name, end - begin, 1);
    } else {
        far_require(far_take(far_peer, line, sizeof line) && far_give(far_peer, buffer, bytes));
    }
    bz_barrier();
}

static void require(uint64_t found, uint64_t expected) {
    if (found != expected) {
        fprintf(stderr, "bench: the data that arrived are not those that were sent\n");
        exit(3);
    }
}

/* The same bytes through the channel, from asking for them until they are there. */
static void transfer(uint64_t number, int which, int is_warm) {
    uint64_t bytes = (uint64_t)SMALLEST << 2 * which, *words = (uint64_t *)buffer;
    if (node == 0)
        for (uint64_t at = 0; at < bytes / 8; at++)
            words[at] = number;
    bz_barrier();
    if (node == 1) {
        uint64_t begin = now();
        TPPI_send_W(0, on_go, which);
        TPPI_sleep(&waiting);
        uint64_t end = now();
        require(words[0], number);
        require(words[bytes / 16], number);
        require(words[bytes / 8 - 1], number);
        TPPI_reset_channel(0, channels[which]);
        char name[32];
        snprintf(name, sizeof name, "bulk_%lu", (unsigned long)bytes);
        if (is_warm)
            record(name, end - begin, 1);
    }
    bz_barrier();
}

static void bench_bulk(uint64_t batches) {
    /* Pages of 4 KiB, as the memory of both processes has. */
    buffer = mmap(0, LARGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) {
        perror("bench: no memory");
        exit(3);
    }
    madvise(buffer, LARGEST, MADV_NOHUGEPAGE);
    memset(buffer, 1, LARGEST);
    bz_barrier();
    if (node == 0)
        for (int which = 0; which < SIZES; which++) {
            channels[which] = TPPI_set_channel_src(1, 0);
            TPPI_send_WW(1, on_channel, which, channels[which]);
        }
    bz_barrier();
    static uint64_t number;
    for (uint64_t batch = 0; batch < batches + warm_up; batch++)
        for (int which = 0; which < SIZES; which++) {
            int is_warm = batch >= warm_up;
            uint64_t bytes = (uint64_t)SMALLEST << 2 * which;
            if (far_peer >= 0) {
                far_copies(bytes, is_warm);
            } else {
                copies(++number, bytes, 0, "copy_string", is_warm);
                copies(++number, bytes, 1, "copy_pieces", is_warm);
            }
            transfer(++number, which, is_warm);
        }
}

int main(int count, char **list) {
    begin_bench(count, list, BULK + LARGEST);
    const char *what = text_argument("what");
    uint64_t batches = argument("batches");
    if (!strcmp(what, "am"))
        bench_messages(batches);
    else if (!strcmp(what, "bulk"))
        bench_bulk(batches);
    else
        return 3;
    return end_bench();
}
