//# flags: -O2
//# link: -pie | -static
//# compilers: gcc
//# nodes: 2
//# guarded-nodes: 2 3
/* A call that waits may block all signals meanwhile but the one that it waits for: by its mask, and so may the action of the handler that then runs. The handler uses
 * memory that other nodes have taken away. Where memory is guarded its accesses raise SIGSEGV, and system calls of code without checks raise SIGSYS: a node
 * whose kernel blocks either of them dies there. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 16, STRIDE = 8, ROUNDS = 4, WAITS = 7 };
static volatile uint64_t *shared;
static volatile unsigned handled;
static aio_context_t aio;
static int epoll;

static void handle(int number) {
    (void)number;
    handled++;
    for (int i = 0; i < WORDS; i++) __atomic_fetch_add(&shared[i * STRIDE], 1, __ATOMIC_SEQ_CST);
}

/* Waits for the signal with all others blocked; what the call has returned, and whether the mask is as before. */
static int waits(int how, const sigset_t *others) {
    struct timespec long_time = {60, 0};
    struct epoll_event event;
    struct { const sigset_t *mask; size_t bytes; } pair = {others, 8};
    struct io_event done;
    switch (how) {
    case 0: return sigsuspend(others);
    case 1: return ppoll(NULL, 0, &long_time, others);
    case 2: return pselect(0, NULL, NULL, NULL, &long_time, others);
    case 3: return epoll_pwait(epoll, &event, 1, 60000, others);
    case 4: return (int)syscall(SYS_epoll_pwait2, epoll, &event, 1, &long_time, others, 8);
    case 5: return aio ? (int)syscall(SYS_io_pgetevents, aio, 1, 1, &done, &long_time, &pair) : sigsuspend(others);
    default: {
        /* Not by a mask: waits for all signals that are blocked, and takes the one that comes. */
        sigset_t all;
        sigfillset(&all);
        const int got = sigtimedwait(&all, NULL, &long_time);
        if (got == SIGALRM) handle(got), errno = EINTR;
        return got == SIGALRM ? -1 : got;
    }
    }
}

int main(void) {
    const unsigned node = bz_node(), nodes = bz_nodes();
    unsigned failed = 0, rounds = 0;
    if (node == 0) bz_publish(0, bz_alloc(WORDS * STRIDE * sizeof(uint64_t)));
    shared = bz_lookup(0);
    epoll = epoll_create1(0);
    if (syscall(SYS_io_setup, 8, &aio)) aio = 0;
    struct sigaction action = {.sa_handler = handle};
    sigfillset(&action.sa_mask);
    sigset_t alarm, others, before, after;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigfillset(&others);
    sigdelset(&others, SIGALRM);
    failed += sigaction(SIGALRM, &action, NULL) != 0;
    failed += sigprocmask(SIG_BLOCK, &alarm, NULL) != 0;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    const struct itimerspec soon = {.it_value.tv_nsec = 3000000};
    timer_t timer;
    failed += timer_create(CLOCK_MONOTONIC, &event, &timer) != 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int how = 0; how < WAITS; how++, rounds++) {
            /* By turns: the others take the memory away while one waits. */
            bz_barrier();
            for (unsigned turn = 0; turn < nodes; turn++) {
                if (turn == node) {
                    handled = 0;
                    sigprocmask(SIG_BLOCK, NULL, &before);
                    failed += timer_settime(timer, 0, &soon, NULL) != 0;
                    const int result = waits(how, &others);
                    failed += result != -1 || errno != EINTR || handled != 1;
                    sigprocmask(SIG_BLOCK, NULL, &after);
                    failed += memcmp(&before, &after, 8) != 0;
                    /* Plain code behind the call. */
                    for (int i = 0; i < WORDS; i++) shared[i * STRIDE] += 1;
                }
                bz_barrier();
                for (int i = 0; i < WORDS; i++) __atomic_fetch_add(&shared[i * STRIDE], 1, __ATOMIC_SEQ_CST);
                bz_barrier();
            }
        }
    }
    for (int i = 0; i < WORDS; i++) failed += shared[i * STRIDE] != (uint64_t)rounds * nodes * (2 + nodes);
    failed = (unsigned)bz_reduce_sum_u64(failed);
    if (node == 0) printf("failed %u\n", failed);
    return 0;
}
