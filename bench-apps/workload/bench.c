/* The program that `blizzard bench miss` and `blizzard bench false-sharing` run on two nodes. Node 0 is the home of all blocks, node 1
 * measures. See bench.h.
 */
#include "bench.h"
#include <poll.h>

/* ---- misses ---- */

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
        tell(STOP, number);
        if (is_warm)
            record(name, end - begin, BATCH);
    }
    bz_barrier();
}

/* Single read misses while the home sleeps in a barrier, or waits in a system call of the program. */
static void quiet_misses(char *blocks, int in_kernel, const char *name, int is_warm) {
    enum { FEW = 4, ASLEEP_AFTER = 1000000 };
    static uint64_t number;
    number++;
    volatile uint64_t *at = (volatile uint64_t *)blocks;
    if (node == 0)
        for (int i = 0; i < FEW; i++)
            at[i * 8] = number;
    bz_barrier();
    if (node == 0 && in_kernel) {
        tell(ASLEEP, number);
        while (told(STOP) != number << 32)
            poll(0, 0, 2);
    }
    if (node == 1) {
        for (int i = 0; i < FEW; i++) {
            while (in_kernel && told(ASLEEP) != number)
                _mm_pause();
            uint64_t since = now();
            while (now() - since < ASLEEP_AFTER)
                _mm_pause();
            uint64_t begin = now();
            (void)at[i * 8];
            uint64_t end = now();
            if (is_warm)
                record(name, end - begin, 1);
        }
        tell(STOP, number << 32);
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
        record_stamp();
    }
}

static void bench_misses(uint64_t batches) {
    char *blocks = 0;
    if (node == 0)
        bz_publish(0, bz_alloc_on(0, BATCH * BLOCK));
    blocks = bz_lookup(0);
    const char *words = find_argument("steps");
    const volatile uint64_t *instruments = words ? (const volatile uint64_t *)strtoull(words, 0, 0) : 0;
    for (uint64_t batch = 0; batch < batches + warm_up; batch++) {
        int is_warm = batch >= warm_up;
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
        if (batch % 8 == 0) {
            quiet_misses(blocks, 0, "read_miss_sleeping", is_warm);
            quiet_misses(blocks, 1, "read_miss_in_kernel", is_warm);
        }
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
    for (uint64_t batch = 0; batch < batches + warm_up; batch++) {
        int is_warm = batch >= warm_up;
        store_often(memory, 2 * PAGE, "different_pages", is_warm);
        store_often(memory, BLOCK, "neighbouring_blocks", is_warm);
        store_often(memory, 8, "same_block", is_warm);
    }
}

int main(int count, char **list) {
    begin_bench(count, list, PAGE);
    const char *what = text_argument("what");
    uint64_t batches = argument("batches");
    if (!strcmp(what, "miss"))
        bench_misses(batches);
    else if (!strcmp(what, "false-sharing"))
        bench_false_sharing(batches);
    else
        return 3;
    return end_bench();
}
