/* What the programs of `blizzard bench` have in common: two nodes, each on a processor of its own; a page of both processes that Blizzard knows
 * nothing of; the clock; the results.
 *
 * Floors and figures are measured in turn, batch by batch, in the same two processes, so that whatever slows the machine down slows both.
 * The floor of a miss or a message is a cache line that both processes have mapped: one writes it, the other sees that and writes it back. It is
 * accessed relative to fs, which rewritten code takes for thread-local and does not check. Nodes of two hosts have no such page: without the argument
 * `raw` floors go over TCP (`far.h`), and what one node must tell the other stands in shared memory.
 *
 * Arguments: name=value; see `rewriter/src/cli/bench`, which gives them. Output: lines "name value", one for each batch: cycles of the
 * time-stamp counter per access.
 */
#ifndef BENCH_H
#define BENCH_H

#include "far.h"
#include "workload.h"
#include <blizzard.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <x86intrin.h>

enum { BATCH = 64, BLOCK = 64, PAGE = 4096 };
/* Batches that come first and are not recorded. */
static uint64_t warm_up = 50;

static unsigned node;
static FILE *results;
static struct timespec begin_time;
static uint64_t begin_cycles;

/* ---- memory of both processes that Blizzard knows nothing of ---- */

enum { LINE = 0, STOP = 128, ASLEEP = 256, FREE = 512 };
static char *raw_base;
/* The distance from where fs points to an address. */
static inline uint64_t from_fs(const char *at) {
    return (uint64_t)at - (uint64_t)__builtin_thread_pointer();
}

static inline uint64_t raw_load(uint64_t offset) {
    uint64_t value;
    __asm__ volatile("movq %%fs:(%1), %0" : "=r"(value) : "r"(from_fs(raw_base + offset)) : "memory");
    return value;
}

static inline void raw_store(uint64_t offset, uint64_t value) {
    __asm__ volatile("movq %0, %%fs:(%1)" : : "r"(value), "r"(from_fs(raw_base + offset)) : "memory");
}

/* Of nodes on two hosts: the words STOP and ASLEEP, in shared memory; and the connection to the other node. */
static volatile uint64_t *far_words;
static int far_peer = -1;
/* Where they are looked up. */
enum { FAR_WORDS = 40, FAR_PLACE = 41 };

/* What the other node has told by a word. */
static inline uint64_t told(uint64_t offset) { return far_words ? far_words[offset / 8] : raw_load(offset); }

static inline void tell(uint64_t offset, uint64_t value) {
    if (far_words)
        far_words[offset / 8] = value;
    else
        raw_store(offset, value);
}

/* Makes of nodes without memory of both a pair that is connected. */
static void connect_far(void) {
    struct far_place *place = 0;
    int listener = -1;
    if (node == 0) {
        far_words = bz_alloc_on(0, PAGE);
        place = bz_alloc_on(0, sizeof *place);
        struct far_place here;
        listener = far_listen(&here);
        *place = here;
        bz_publish(FAR_WORDS, (void *)far_words);
        bz_publish(FAR_PLACE, place);
    }
    far_words = bz_lookup(FAR_WORDS);
    struct far_place there = *(struct far_place *)bz_lookup(FAR_PLACE);
    far_peer = node == 0 ? far_accept(listener, &there) : far_connect(&there);
    if (far_peer < 0) {
        fprintf(stderr, "bench: node 1 finds no way to node 0 over TCP (IPv4)\n");
        exit(3);
    }
}

static void map_raw(const char *path, uint64_t bytes) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes)) {
        perror(path);
        exit(3);
    }
    void *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) {
        perror("bench: cannot map the floor's memory");
        exit(3);
    }
    raw_base = memory;
}

static void pin(const char *name) {
    if (!find_argument(name))
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(argument(name), &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        perror("bench: cannot pin the node to a processor");
        exit(3);
    }
}

/* The time-stamp counter, when everything before has been done. */
static inline uint64_t now(void) {
    _mm_lfence();
    return __rdtsc();
}

static void record(const char *name, uint64_t cycles, uint64_t accesses) {
    fprintf(results, "%s %.2f\n", name, (double)cycles / (double)accesses);
}

/* Round trips of a cache line. */
static void ping_pong(int is_warm) {
    static uint64_t count;
    bz_barrier();
    uint64_t begin = now();
    for (int i = 0; i < BATCH; i++) {
        count += 2;
        if (far_peer >= 0) {
            far_to_and_fro(far_peer, node == 1);
        } else if (node == 1) {
            raw_store(LINE, count - 1);
            while (raw_load(LINE) != count)
                _mm_pause();
        } else {
            while (raw_load(LINE) != count - 1)
                _mm_pause();
            raw_store(LINE, count);
        }
    }
    uint64_t end = now();
    if (node == 1 && is_warm)
        record("ping_pong", end - begin, BATCH);
}

/* What a time stamp takes. */
static inline void record_stamp(void) {
    uint64_t begin = now();
    for (int i = 0; i < BATCH; i++)
        (void)now();
    record("stamp", now() - begin, BATCH + 1);
}

/* Work without a poll inside: 48 multiplications, each of which needs the one before. */
#define MULTIPLY4(x) x *= x | 1, x *= x | 5, x *= x | 3, x *= x | 7
static inline uint64_t work(uint64_t x) {
    MULTIPLY4(x), MULTIPLY4(x), MULTIPLY4(x), MULTIPLY4(x), MULTIPLY4(x), MULTIPLY4(x);
    MULTIPLY4(x), MULTIPLY4(x), MULTIPLY4(x), MULTIPLY4(x), MULTIPLY4(x), MULTIPLY4(x);
    return x;
}

/* The home computes until node 1 has written the batch's number; polls once for each piece of work. */
static void compute_until(uint64_t number, int is_warm) {
    uint64_t x = number, turns = 0, begin = now();
    if (far_words)
        while (far_words[STOP / 8] != number)
            x = work(x), turns++;
    else
        while (raw_load(STOP) != number)
            x = work(x), turns++;
    uint64_t end = now();
    volatile uint64_t sink = x;
    (void)sink;
    if (is_warm && turns)
        record("poll_interval", end - begin, turns);
}

/* Prepares a node; `raw_bytes` bytes are shared besides Blizzard. */
static void begin_bench(int count, char **list, uint64_t raw_bytes) {
    argument_count = count, argument_list = list;
    node = bz_node();
    if (bz_nodes() != 2) {
        fprintf(stderr, "bench: two nodes measure each other\n");
        exit(3);
    }
    pin(node ? "processor1" : "processor0");
    if (find_argument("raw"))
        map_raw(text_argument("raw"), raw_bytes);
    else
        connect_far(), warm_up = 5;
    /* Nobody writes while others measure. */
    results = stdout;
    setvbuf(results, 0, _IOFBF, 1 << 20);
    clock_gettime(CLOCK_MONOTONIC, &begin_time);
    begin_cycles = now();
}

/* Writes the rate of the clock down; the exit status. */
static int end_bench(void) {
    struct timespec end;
    uint64_t last = now();
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = (double)(end.tv_sec - begin_time.tv_sec) * 1e9 + (double)(end.tv_nsec - begin_time.tv_nsec);
    fprintf(results, "cycles_per_ns %.6f\n", (double)(last - begin_cycles) / ns);
    return fclose(results) != 0;
}

#endif
