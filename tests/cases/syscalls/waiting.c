//# uses: blizzard
//# flags: -O2 -fno-tree-loop-distribute-patterns
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 2 3
//# checks: all
/* A node that waits in the kernel gives its blocks to the others meanwhile, and notices nothing of it: no call ends early, none is interrupted
 * but by the node's own signals, none starts its timeout again. All nodes but node 0 wait in one call after the other; node 0 uses their
 * blocks until they say that they are back, which is at the same time the only way for it to get on: were the timeouts started again with each
 * access, no wait would ever end. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Turns that there must be within a wait. A machine may stand still for longer than a short wait (a virtual one whose processors are taken away):
 * then the wait is made again, longer. A node that did not answer while it waits would fail the longest, too; so would a call that is not
 * interrupted by the alarm, which on such a machine may also come before the call. */
enum { SHORTEST_MS = 250, LONGEST_MS = 16000, ROUNDS = 4 };
static unsigned node, nodes, failures, kind, early_alarm;
static long wait_ms;
static int fds[2], epoll;
static uint32_t word;
static volatile int ticks;
static volatile uint64_t *own;

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            failures++;                                                                                             \
            fprintf(stderr, "node %u kind %u line %d: %s (errno %d)\n", node, kind, __LINE__, #condition, errno);   \
        }                                                                                                           \
    } while (0)

static void tick(int signal) {
    (void)signal;
    ticks++;
    if (kind >= 11)
        (void)!write(fds[1], "12345678", 8);
}

/* With `again` more alarms follow at the same distance. 0: none any more. */
static void alarm_in(long ms, int flags, int again) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = flags};
    struct itimerval timer = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};
    if (again)
        timer.it_interval = timer.it_value;
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &timer, 0);
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits in the way of `kind`; returns 0 when there is no such kind. */
static int wait_once(void) {
    struct timespec time = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000};
    struct timeval timeval = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000};
    struct epoll_event event;
    struct pollfd pollfd = {.fd = fds[0], .events = POLLIN};
    sigset_t none, alarm;
    fd_set set;
    char byte[8];
    int64_t begin = now_ms(), got;
    int before = ticks;
    early_alarm = 0;
    sigemptyset(&none);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    FD_ZERO(&set);
    FD_SET(fds[0], &set);
    switch (kind) {
    case 0: CHECK(nanosleep(&time, 0) == 0); break;
    case 1: CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == 0); break;
    case 2: CHECK(poll(&pollfd, 1, wait_ms) == 0); break;
    case 3: CHECK(ppoll(&pollfd, 1, &time, &none) == 0); break;
    case 4: CHECK(select(fds[0] + 1, &set, 0, 0, &timeval) == 0); break;
    case 5: CHECK(pselect(fds[0] + 1, &set, 0, 0, &time, &none) == 0); break;
    case 6: CHECK(epoll_wait(epoll, &event, 1, wait_ms) == 0); break;
    case 7: CHECK(epoll_pwait(epoll, &event, 1, wait_ms, &none) == 0); break;
    case 8: CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, 0, 0) == -1 && errno == ETIMEDOUT); break;
    case 9: CHECK(sigtimedwait(&alarm, 0, &time) == -1 && errno == EAGAIN); break;
    case 10: { /* The program's own signal interrupts, once. */
        alarm_in(wait_ms, 0, 1);
        CHECK(pause() == -1 && errno == EINTR && ticks > before);
        alarm_in(0, 0, 0);
        early_alarm = ticks != before + 1;
        break;
    }
    case 11: { /* Restarted after the program's handler, which writes what the call then reads; into shared memory. */
        alarm_in(wait_ms, SA_RESTART, 0);
        CHECK(read(fds[0], (void *)(own + 1), 8) == 8 && !memcmp((void *)(own + 1), "12345678", 8));
        CHECK(ticks == before + 1);
        break;
    }
    case 12: { /* Interrupted by it: what the handler has written is still there. */
        alarm_in(wait_ms, 0, 0);
        got = read(fds[0], (void *)(own + 1), 8);
        early_alarm = got == 8;
        CHECK((early_alarm || (got == -1 && errno == EINTR)) && ticks == before + 1);
        CHECK(early_alarm || read(fds[0], byte, 8) == 8);
        break;
    }
    case 13: { /* Let in by the call alone. */
        sigprocmask(SIG_BLOCK, &alarm, 0);
        alarm_in(wait_ms, SA_RESTART, 0);
        CHECK(sigsuspend(&none) == -1 && errno == EINTR && ticks == before + 1);
        sigprocmask(SIG_UNBLOCK, &alarm, 0);
        CHECK(read(fds[0], byte, 8) == 8);
        break;
    }
    default: return 0;
    }
    /* Signals of the timer may come a little early by this clock. */
    CHECK(now_ms() - begin >= wait_ms - 20);
    return 1;
}

/* All nodes but node 0 wait, once; whether node 0 had too few turns meanwhile, or an alarm came too early. */
static int is_too_short(volatile uint64_t **of, uint64_t turn) {
    uint64_t too_short = 0;
    bz_barrier();
    if (node != 0) {
        CHECK(wait_once());
        too_short = early_alarm;
        own[2] = turn;
    } else {
        for (unsigned other = 1; other < nodes; other++) {
            int rounds = 0;
            while (of[other][2] != turn) {
                /* The word, its block and a block of the same page, by turns read and written. */
                of[other][0]++;
                of[other][64]++;
                rounds++;
                usleep(500);
            }
            /* The first of them is observed during its whole wait. */
            too_short |= other == 1 && rounds < ROUNDS;
        }
    }
    return bz_reduce_sum_u64(too_short) != 0;
}

int main(void) {
    node = bz_node();
    nodes = bz_nodes();
    own = bz_alloc_on(node, 4096);
    bz_publish(node, (void *)own);
    volatile uint64_t *of[8];
    for (unsigned other = 0; other < nodes; other++)
        of[other] = bz_lookup(other);
    struct epoll_event event = {.events = EPOLLIN};
    if (pipe(fds) || (epoll = epoll_create1(0)) < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &event))
        return 2;
    uint64_t turn = 0;
    for (kind = 0; kind < 14; kind++) {
        for (wait_ms = SHORTEST_MS; wait_ms <= LONGEST_MS && is_too_short(of, ++turn); wait_ms *= 4) {
        }
        CHECK(wait_ms <= LONGEST_MS);
    }
    bz_barrier();
    if (node == 0)
        for (unsigned other = 1; other < nodes; other++)
            CHECK(of[other][0] == of[other][64]);
    uint64_t all = bz_reduce_sum_u64(failures);
    if (node == 0)
        printf("failures %llu\n", (unsigned long long)all);
    return all != 0;
}
