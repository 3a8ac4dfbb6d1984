//# flags: -O0 | -O2
//# link: -pie | -static
//# nodes: 2 3 4
//# timeout: 60
/* A node that computes with private data answers its peers: in a loop of its own, in the handler of a signal, in a handler that interrupts an access of shared
 * memory, in system calls, which are not interrupted, and between accesses of shared memory. Where such loops have no polls a peer interrupts them. A signal
 * that was put off in code with polls came never when a loop without followed. */
#include "blizzard.h"
#include "late.h"
#include <errno.h>

enum { ROUNDS = 12, WAYS = 5, ASKED = 400, STEPS = 300000, WORDS = 8 };
static volatile uint64_t *words;
static volatile unsigned answered;
static volatile uint64_t sink;
static unsigned node, nodes;
static uint64_t failed;

static void told(int number) { answered = (unsigned)number; }

__attribute__((noinline)) static uint64_t compute(uint64_t x) {
    for (int k = 0; k < 64; k++) x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

__attribute__((noinline)) static void until_answered(void) {
    uint64_t x = node;
    while (!answered) x = compute(x);
    sink = x;
}

__attribute__((noinline)) static void use(uint64_t round) {
    for (unsigned k = 0; k < 50; k++) words[WORDS * (ROUNDS * WAYS + k % 4)] += round;
}

static void in_handler(int number) {
    (void)number;
    until_answered();
}

/* Node 0 is asked for a word, in one of several ways to be busy; whoever has got it tells node 0 by a signal. */
static void ask(unsigned way, unsigned round) {
    volatile uint64_t *word = words + WORDS * (way * ROUNDS + round);
    if (node == 0) answered = 0, *word = round + 1;
    bz_barrier();
    if (node == 0 && way == 0) until_answered();
    if (node == 0 && way == 1) raise(SIGUSR2);
    if (node == 0 && way == 2)
        while (!answered) use(round);
    if (node == 0 && way == 3)
        while (!answered) {
            const struct timespec some = {.tv_nsec = 2000000};
            if (nanosleep(&some, 0) && (errno != EINTR || !answered)) failed++;
        }
    if (node == 0 && way == 4) {
        use(round);
        until_answered();
    }
    if (node == 1 + round % (nodes > 1 ? nodes - 1 : 1) || nodes == 1) {
        if (nodes > 1 && *word != round + 1) failed++;
        if (kill((pid_t)words[WORDS * (ROUNDS * WAYS + 4)], SIGUSR1)) failed++;
    }
    bz_barrier();
}

/* The word of `late.h`, between shared memory and private data. */
__attribute__((noinline)) static void mixed(volatile unsigned *stop) {
    uint64_t x = 1;
    while (!*stop) {
        use(1);
        for (int k = 0; k < 20 && !*stop; k++) x = compute(x);
    }
    sink = x;
}

/* A signal that comes while shared memory is used, just in front of a loop without. */
__attribute__((noinline)) static void mixed_then_private(volatile unsigned *stop) {
    const int64_t end = late_clock(CLOCK_MONOTONIC) + LATE_AFTER_NS;
    while (late_clock(CLOCK_MONOTONIC) < end && !*stop) use(1);
    uint64_t x = 1;
    while (!*stop) x = compute(x);
    sink = x;
}

int main(void) {
    node = bz_node(), nodes = bz_nodes();
    signal(SIGUSR1, told);
    signal(SIGUSR2, in_handler);
    if (node == 0) {
        uint64_t *at = bz_alloc_on(0, sizeof *at * WORDS * (ROUNDS * WAYS + 5));
        at[WORDS * (ROUNDS * WAYS + 4)] = (uint64_t)getpid();
        bz_publish(0, at);
        bz_publish(1, bz_counter_new(0));
    }
    words = bz_lookup(0);
    bz_counter_t *counter = bz_lookup(1);
    if (nodes == 1) {
        answered = 1;
        for (unsigned k = 0; k < ROUNDS * WAYS; k++) use(k);
    } else {
        for (unsigned round = 0; round < ROUNDS; round++)
            for (unsigned way = 0; way < WAYS; way++) ask(way, round);
    }
    /* All others ask again and again while node 0 computes. */
    uint64_t x = 1;
    if (node == 0)
        for (int k = 0; k < STEPS / 64; k++) x = compute(x);
    else
        for (int k = 0; k < ASKED; k++) bz_counter_op(counter, BZ_ADD, 1, 0);
    bz_barrier();
    const uint64_t count = bz_counter_op(counter, BZ_ADD, 0, 0), expected = (uint64_t)ASKED * (nodes - 1);
    int64_t late = late_by(mixed), later = late_by(mixed_then_private);
    late = bz_reduce_max_i64(late), later = bz_reduce_max_i64(later);
    failed = bz_reduce_sum_u64(failed + (count != expected));
    if (node == 0) printf("%lx, failed %lu, handled %s, %s\n", (unsigned long)x, (unsigned long)failed, late_words(late), late_words(later));
    return failed != 0;
}
