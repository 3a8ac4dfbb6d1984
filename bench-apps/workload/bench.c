/* The program that `blizzard bench` runs on two nodes, each on a processor of its own. Node 0 is the home of all blocks, node 1 measures.
 *
 * Floors and figures are measured in turn, batch by batch, in the same two processes, so that whatever slows the machine down slows both.
 * The floor is a cache line that both processes have mapped: one writes it, the other sees that and writes it back. It is accessed relative to
 * gs, which rewritten code does not check.
 *
 * Arguments: name=value; see `rewriter/src/cli/bench.rs`, which gives them. Output: lines "name value" in the file of the argument
 * `results`, one for each batch: cycles of the time-stamp counter per access.
 */
#include "workload.h"
#include <asm/prctl.h>
#include <blizzard.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <x86intrin.h>

enum { BATCH = 64, WARM_UP = 50, BLOCK = 64, PAGE = 4096 };

static unsigned node;
static FILE *results;

/* ---- memory of both processes that Blizzard knows nothing of, at offsets from gs ---- */

enum { LINE = 0, STOP = 128 };

static inline uint64_t raw_load(uint64_t offset) {
    uint64_t value;
    __asm__ volatile("movq %%gs:(%1), %0" : "=r"(value) : "r"(offset) : "memory");
    return value;
}

static inline void raw_store(uint64_t offset, uint64_t value) {
    __asm__ volatile("movq %0, %%gs:(%1)" : : "r"(value), "r"(offset) : "memory");
}

static void map_raw(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, PAGE)) {
        perror(path);
        exit(2);
    }
    void *page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED || syscall(SYS_arch_prctl, ARCH_SET_GS, page)) {
        perror("bench: cannot map the floor's page");
        exit(2);
    }
}

static void pin(const char *name) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(argument(name), &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        perror("bench: cannot pin the node to a processor");
        exit(2);
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
        if (node == 1) {
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

/* ---- misses ---- */

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
    while (raw_load(STOP) != number) {
        x = work(x);
        turns++;
    }
    uint64_t end = now();
    volatile uint64_t sink = x;
    (void)sink;
    if (is_warm && turns)
        record("poll_interval", end - begin, turns);
}

enum kind { READ, WRITE, UPGRADE };

/* One batch of misses of node 1 on blocks of node 0, which spins in a barrier or computes. */
static void misses(char *blocks, enum kind kind, int home_computes, const char *name, int is_warm) {
    static uint64_t number;
    number++;
    volatile uint64_t *at = (volatile uint64_t *)blocks;
    enum { STEP = BLOCK / 8 };
    if (node == 0)
        for (int i = 0; i < BATCH; i++)
            at[i * STEP] = number;
    bz_barrier();
    if (node == 1 && kind == UPGRADE)
        for (int i = 0; i < BATCH; i++)
            (void)at[i * STEP];
    bz_barrier();
    if (node == 0) {
        if (home_computes)
            compute_until(number, is_warm);
    } else {
        uint64_t begin, end;
        if (kind == READ) {
            begin = now();
            for (int i = 0; i < BATCH; i++)
                (void)at[i * STEP];
            end = now();
        } else {
            begin = now();
            for (int i = 0; i < BATCH; i++)
                at[i * STEP] = number;
            end = now();
        }
        raw_store(STOP, number);
        if (is_warm)
            record(name, end - begin, BATCH);
    }
    bz_barrier();
}

/* One batch of read misses, step by step; the runtime's instruments say when each step was over. */
static void steps(char *blocks, const volatile uint64_t *instruments, int is_warm) {
    static const char *const names[] = {"gate",  "look_up", "send", "request", "handler",
                                        "reply", "copy",    "tag",  "end",     "return"};
    enum { STEPS = 9 };
    static uint64_t times[BATCH][STEPS + 2];
    volatile uint64_t *at = (volatile uint64_t *)blocks;
    if (node == 0)
        for (int i = 0; i < BATCH; i++)
            at[i * 8] = 1;
    bz_barrier();
    if (node == 1)
        for (int i = 0; i < BATCH; i++) {
            times[i][0] = now();
            (void)at[i * 8];
            times[i][STEPS + 1] = now();
            for (int k = 0; k < STEPS; k++)
                times[i][k + 1] = instruments[k];
        }
    bz_barrier();
    if (node == 1 && is_warm) {
        for (int i = 0; i < BATCH; i++) {
            for (int k = 0; k <= STEPS; k++)
                fprintf(results, "step_%s %lld\n", names[k], (long long)(times[i][k + 1] - times[i][k]));
            record("step_total", times[i][STEPS + 1] - times[i][0], 1);
        }
        uint64_t begin = now();
        for (int i = 0; i < BATCH; i++)
            (void)now();
        record("stamp", now() - begin, BATCH + 1);
    }
}

static void bench_misses(uint64_t batches) {
    char *blocks = 0;
    if (node == 0)
        bz_publish(0, bz_alloc_on(0, BATCH * BLOCK));
    blocks = bz_lookup(0);
    const char *words = find_argument("steps");
    const volatile uint64_t *instruments = words ? (const volatile uint64_t *)strtoull(words, 0, 0) : 0;
    for (uint64_t batch = 0; batch < batches + WARM_UP; batch++) {
        int is_warm = batch >= WARM_UP;
        if (instruments) {
            steps(blocks, instruments, is_warm);
            continue;
        }
        ping_pong(is_warm);
        misses(blocks, READ, 0, "read_miss", is_warm);
        misses(blocks, WRITE, 0, "write_miss", is_warm);
        misses(blocks, UPGRADE, 0, "upgrade", is_warm);
        misses(blocks, READ, 1, "read_miss_computing", is_warm);
        misses(blocks, WRITE, 1, "write_miss_computing", is_warm);
        misses(blocks, UPGRADE, 1, "upgrade_computing", is_warm);
    }
}

/* ---- false sharing ---- */

/* Both nodes store to a word of their own, `distance` bytes apart. */
static void store_often(char *memory, uint64_t distance, const char *name, int is_warm) {
    enum { STORES = 4000 };
    volatile uint64_t *own = (volatile uint64_t *)(memory + node * distance);
    bz_barrier();
    *own = 0;
    uint64_t begin = now();
    for (uint64_t i = 0; i < STORES; i++)
        *own = i;
    uint64_t end = now();
    bz_barrier();
    if (is_warm)
        record(name, end - begin, STORES);
}

static void bench_false_sharing(uint64_t batches) {
    char *memory = 0;
    if (node == 0)
        bz_publish(0, bz_alloc(4 * PAGE));
    memory = bz_lookup(0);
    for (uint64_t batch = 0; batch < batches + WARM_UP; batch++) {
        int is_warm = batch >= WARM_UP;
        store_often(memory, 2 * PAGE, "different_pages", is_warm);
        store_often(memory, BLOCK, "neighbouring_blocks", is_warm);
        store_often(memory, 8, "same_block", is_warm);
    }
}

int main(int count, char **list) {
    argument_count = count, argument_list = list;
    node = bz_node();
    if (bz_nodes() != 2) {
        fprintf(stderr, "bench: two nodes measure each other\n");
        return 2;
    }
    pin(node ? "processor1" : "processor0");
    map_raw(text_argument("raw"));
    char path[4096];
    snprintf(path, sizeof path, "%s-%u", text_argument("results"), node);
    results = fopen(path, "w");
    if (!results) {
        perror(path);
        return 2;
    }
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    uint64_t first = now();
    const char *what = text_argument("what");
    uint64_t batches = argument("batches");
    if (!strcmp(what, "miss"))
        bench_misses(batches);
    else if (!strcmp(what, "false-sharing"))
        bench_false_sharing(batches);
    else
        return 2;
    uint64_t last = now();
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    fprintf(results, "cycles_per_ns %.6f\n", (double)(last - first) / ns);
    return fclose(results) != 0;
}
