//# flags: -O0 | -O2
//# link: -pie | -no-pie -s | -static
//# nodes: 2 3
/* The handler of an asynchronous signal, a timer's, leaves what it has interrupted by siglongjmp: loops over shared memory that other nodes write at the
 * same time, a recursion, functions of the C library, waiting system calls. What was done in order must then be done up to one point and
 * not beyond; the mask must be what sigsetjmp has saved, or the handler's; and all must go on as before. */
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 64, NODES = 8, BYTES = 3000, REAL_TIME = 1, QUEUED = 4711, TURNS = 8 };
static unsigned nodes;
/* Each node has one word of each cell, and the cells are blocks. */
static volatile uint64_t *cells;
/* Each node has BYTES of its own, which begin and end inside blocks. */
static char *mine, *theirs;
/* Handled signals of each node, and at the end what each has done. */
static volatile uint64_t *counts;
static sigjmp_buf back;
static volatile sig_atomic_t armed, handled, stray;
static volatile uint64_t progress;
static volatile unsigned filling;
static int pipe_ends[2];
static timer_t timer;

static volatile uint64_t *word(uint64_t cell) { return cells + cell % CELLS * NODES + node; }

static void leave(int number, siginfo_t *info, void *context) {
    const int queued = number != SIGALRM;
    if (number != info->si_signo || queued != (info->si_code == SI_TIMER) || queued && info->si_value.sival_int != QUEUED || !context)
        failures++;
    handled++;
    counts[node]++;
    memset(mine + BYTES - 10, number, 10);
    if (!armed) {
        stray++;
        return;
    }
    armed = 0;
    siglongjmp(back, number);
}

/* Every word once, one after the other, from where it was left. */
static void in_order(void) {
    for (;;) {
        *word(progress) += 1;
        progress++;
    }
}
static void in_order_whole_passes(void) {
    for (uint64_t c = progress % CELLS;; c = 0)
        for (; c < CELLS; c++) {
            cells[c * NODES + node] += 1;
            progress++;
        }
}
__attribute__((noinline)) static uint64_t deeper(unsigned depth) {
    volatile uint64_t here = depth;
    *word(progress) += 1;
    progress++;
    return depth == 200 ? 0 : deeper(depth + 1) + here;
}
static void recursion(void) {
    for (;;) deeper(0);
}
static void library(void) {
    static char copy[BYTES];
    for (;;) {
        filling++;
        memset(mine, (int)filling, BYTES - 10);
        memcpy(copy, theirs, BYTES);
        if (strnlen(copy, BYTES) > BYTES) failures++;
    }
}
static void reading(void) {
    for (;;) CHECK(read(pipe_ends[0], mine + 40, 200) == -1);
}
static void pausing(void) {
    for (;;) pause();
}
static void suspended(void) {
    sigset_t none;
    sigemptyset(&none);
    for (;;) sigsuspend(&none);
}
static void sleeping(void) {
    /* In shared memory: the kernel reads it, and writes what is left. */
    struct timespec *t = (struct timespec *)(mine + 8 - (uintptr_t)mine % 8);
    for (;;) {
        t->tv_sec = 1000;
        t->tv_nsec = 0;
        nanosleep(t, t);
    }
}
static void polling(void) {
    struct pollfd p = {pipe_ends[0], POLLIN, 0};
    for (;;) poll(&p, 1, -1);
}
static void calling(void) {
    for (;;) {
        getppid();
        *word(progress) += 1;
        progress++;
    }
}

static void (*const works[])(void) = {in_order, in_order_whole_passes, recursion, library, reading, pausing, suspended, sleeping, polling, calling};
enum { WORKS = sizeof works / sizeof *works };

static void start(long us, int real_time) {
    struct itimerspec queued = {.it_value = {0, us * 1000}};
    struct itimerval alarm = {.it_value = {0, us}};
    if (real_time ? timer_settime(timer, 0, &queued, 0) : setitimer(ITIMER_REAL, &alarm, 0)) failures++;
}

/* The words are what `progress` says, but for the one between whose store and count the signal may have come. */
static void look(void) {
    uint64_t sum = 0, first = *word(0);
    for (unsigned c = 0; c < CELLS; c++) {
        uint64_t is = *word(c);
        CHECK(is <= first && is + 1 >= first);
        if (c) CHECK(is <= *word(c - 1));
        sum += is;
    }
    CHECK(sum == progress || sum == progress + 1);
    progress = sum;
}

/* Of the memset that was left each byte is there, or is as it was before. */
static void look_at_bytes(int left) {
    for (unsigned i = 0; i < BYTES - 10 && left; i++) {
        const unsigned is = (unsigned char)mine[i];
        if (is != (filling & 255) && is != (filling - 1 & 255)) {
            CHECK(!"old or new");
            break;
        }
    }
    memset(mine, (int)filling, BYTES - 10);
}

/* One jump; the statement after sigsetjmp is reached once more, by it. */
__attribute__((noinline)) static void attempt(unsigned number, int saves) {
    const int real_time = number & 1, sent = real_time ? SIGRTMIN + REAL_TIME : SIGALRM;
    sigset_t now;
    int got;
    if (saves) got = sigsetjmp(back, 1);
    else got = sigsetjmp(back, 0);
    if (got == 0) {
        armed = 1;
        start(100 + number * 37 % 600, real_time);
        works[(number / 2 + node) % WORKS]();
        abort();
    }
    CHECK(got == sent && !armed);
    CHECK(sigprocmask(SIG_BLOCK, 0, &now) == 0);
    /* Without a saved mask that of the handler stays: its signal and all that its action names are blocked. */
    CHECK(sigismember(&now, sent) == !saves && sigismember(&now, SIGUSR2) == !saves && !sigismember(&now, SIGUSR1));
    sigemptyset(&now);
    CHECK(sigprocmask(SIG_SETMASK, &now, 0) == 0);
}

int main(void) {
    node = bz_node();
    nodes = bz_nodes();
    if (node == 0) {
        bz_publish(0, bz_alloc(CELLS * NODES * sizeof *cells));
        bz_publish(1, bz_alloc(nodes * BYTES));
        bz_publish(2, bz_alloc(2 * NODES * sizeof *counts));
    }
    cells = bz_lookup(0);
    mine = (char *)bz_lookup(1) + node * BYTES;
    theirs = (char *)bz_lookup(1) + (node + 1) % nodes * BYTES;
    counts = bz_lookup(2);
    CHECK(pipe(pipe_ends) == 0);
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};
    action.sa_sigaction = leave;
    sigaddset(&action.sa_mask, SIGUSR2);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + REAL_TIME, .sigev_value.sival_int = QUEUED};
    CHECK(sigaction(SIGALRM, &action, 0) == 0 && sigaction(SIGRTMIN + REAL_TIME, &action, 0) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    bz_barrier();
    for (unsigned number = 0; number < TURNS * WORKS * 2; number++) {
        attempt(number, number / WORKS % 2 == 0);
        look();
        look_at_bytes(works[(number / 2 + node) % WORKS] == library);
    }
    CHECK(handled == TURNS * WORKS * 2 && stray == 0);
    counts[NODES + node] = progress;
    bz_barrier();
    /* The next node finds what was done here. */
    const unsigned next = (node + 1) % nodes;
    uint64_t sum = 0;
    for (unsigned c = 0; c < CELLS; c++) sum += cells[c * NODES + next];
    CHECK(sum == counts[NODES + next] && counts[next] == TURNS * WORKS * 2);
    bz_barrier();
    return failed();
}
