//# flags: -O0 | -O2
//# nodes: 2 3
/* Two signals share an alternate stack, and the second comes while the handler of the first waits for a block. That wait is on a stack of the runtime's, so for the kernel
 * the alternate stack is free: the second handler must not begin at its top, over the frames of the first. */
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { STACK = 128 * 1024, BYTES = 4000, MARKS = 64, ROUNDS = 300 };
static volatile uint64_t *words; /* each node's own, beside each other */
static char *text;               /* all nodes write it in turn */
static char stack[STACK] __attribute__((aligned(4096)));
static timer_t soon;
static volatile sig_atomic_t firsts, seconds;

static void start_timer(timer_t timer, long ns) {
    struct itimerspec once = {.it_value = {0, ns}};
    CHECK(timer_settime(timer, 0, &once, 0) == 0);
}

__attribute__((noinline)) static void use_blocks(int by) {
    char copy[BYTES];
    memcpy(copy, text, BYTES);
    text[(unsigned)copy[7] * 64 % BYTES] += (char)by;
    words[node]++;
}

/* The handler's frame is the same behind the misses. */
__attribute__((noinline)) static void misses(unsigned long mark) {
    volatile unsigned long marks[MARKS];
    for (int i = 0; i < MARKS; i++) marks[i] = mark + i;
    use_blocks(1);
    for (int i = 0; i < MARKS; i++)
        if (marks[i] != mark + i) failures++;
}

static void first(int number, siginfo_t *info, void *context) {
    if (info->si_signo != number || !context) failures++;
    start_timer(soon, 2000);
    misses(1000 + (unsigned)firsts);
    if (info->si_signo != number) failures++;
    firsts++;
}

static void second(int number, siginfo_t *info, void *context) {
    if (info->si_signo != number || !context) failures++;
    misses(5000 + (unsigned)seconds);
    seconds++;
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    action.sa_sigaction = handler;
    CHECK(sigaction(signal, &action, 0) == 0);
}

int main(void) {
    timer_t begin;
    node = bz_node();
    if (node == 0) {
        bz_publish(0, bz_alloc(bz_nodes() * sizeof *words));
        bz_publish(1, bz_alloc(BYTES));
    }
    words = bz_lookup(0);
    text = bz_lookup(1);
    const stack_t alternate = {.ss_sp = stack, .ss_size = STACK};
    CHECK(sigaltstack(&alternate, 0) == 0);
    handle(SIGUSR1, first);
    handle(SIGUSR2, second);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &begin) == 0);
    event.sigev_signo = SIGUSR2;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &soon) == 0);
    bz_barrier();
    while (firsts < ROUNDS) {
        const sig_atomic_t seen = firsts;
        start_timer(begin, 20000);
        while (firsts == seen) words[node]++;
    }
    start_timer(soon, 0);
    CHECK(seconds > 0);
    bz_barrier();
    return failed();
}
