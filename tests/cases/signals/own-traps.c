//# flags: -O2
//# link: -pie | -static
//# compilers: gcc
//# nodes: 2 3
//# guarded-nodes: 2
/* A handler of SIGTRAP: for breakpoints of the program's own, for what it sends itself, and for what a timer sends it anywhere. It uses shared memory, of which
 * other nodes take copies away all the time; in between the program counts in the same memory, and nothing may be lost. One that is sent while the handler
 * runs, or while it is blocked, waits until then. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { COUNTS = 20000, EVERY = 20, WORDS = 8, VALUE = 1234, AGAIN = 5678, LEAVE = 9012 };
static uint64_t *shared;
static volatile uint64_t breakpoints, sent, timed, strange, running;
static sigjmp_buf left;

#define EXPECT(it)                                                    \
    do {                                                              \
        if (!(it)) {                                                  \
            strange++;                                                \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #it); \
        }                                                             \
    } while (0)

static void send(int value) {
    const union sigval with = {.sival_int = value};
    EXPECT(sigqueue(getpid(), SIGTRAP, with) == 0);
}

/* While this runs SIGTRAP is blocked, by its action. */
static void blocks(int number) {
    const uint64_t before = sent;
    send(VALUE);
    __atomic_fetch_add(&shared[0], 0, __ATOMIC_SEQ_CST);
    EXPECT(number == SIGUSR1 && sent == before);
}

static void handle(int number, siginfo_t *information, void *context) {
    EXPECT(number == SIGTRAP && context);
    /* One node does not put it off. */
    EXPECT(running++ == 0 || bz_nodes() == 1);
    const int value = information->si_value.sival_int;
    if (information->si_code == SI_TIMER) {
        EXPECT(value == VALUE);
        timed++;
    } else if (information->si_code == SI_QUEUE) {
        EXPECT(information->si_pid == getpid());
        if (value == AGAIN || value == LEAVE) send(VALUE);
        sent++;
    } else {
        breakpoints++;
    }
    for (int k = 0; k < WORDS; k++) __atomic_fetch_add(&shared[k * 8], 1, __ATOMIC_SEQ_CST);
    running--;
    if (information->si_code == SI_QUEUE && value == LEAVE) siglongjmp(left, 1);
}

static uint64_t count(int sends) {
    uint64_t counted = 0;
    for (int n = 0; n < COUNTS; n++) {
        __atomic_fetch_add(&shared[n % WORDS * 8], 1, __ATOMIC_SEQ_CST);
        counted++;
        if (n % (COUNTS / EVERY) == 0) __asm__ volatile("int3" : : : "memory");
        if (sends && n % (COUNTS / EVERY) == 7) send(VALUE);
    }
    return counted;
}

static volatile uint64_t alarms;
static void count_alarm(int number) {
    (void)number;
    alarms++;
}

/* Breakpoints where other signals wait: none of them stays blocked. How many breakpoints. */
static uint64_t break_among_alarms(void) {
    enum { BREAKPOINTS = 2000 };
    struct sigaction action = {.sa_handler = count_alarm};
    EXPECT(sigaction(SIGALRM, &action, 0) == 0);
    const struct itimerval every = {{0, 40}, {0, 40}}, never = {0};
    EXPECT(setitimer(ITIMER_REAL, &every, 0) == 0);
    for (int n = 0; n < BREAKPOINTS; n++) {
        for (int k = 0; k < WORDS; k++) __atomic_fetch_add(&shared[k * 8], 0, __ATOMIC_SEQ_CST);
        __asm__ volatile("int3" : : : "memory");
    }
    const struct timespec second = {.tv_sec = 1};
    const uint64_t before = alarms;
    EXPECT(nanosleep(&second, 0) == -1 && errno == EINTR && alarms > before);
    EXPECT(setitimer(ITIMER_REAL, &never, 0) == 0);
    return BREAKPOINTS;
}

/* Sends while the handler runs, and as long as it is blocked: how many. */
static uint64_t send_while_blocked(void) {
    const uint64_t before = sent;
    send(AGAIN);
    EXPECT(sent == before + 2);
    if (sigsetjmp(left, 1) == 0) {
        send(LEAVE);
        EXPECT(!"left");
    }
    EXPECT(sent == before + 4);
    sigset_t traps, old, now;
    sigemptyset(&traps);
    sigaddset(&traps, SIGTRAP);
    EXPECT(sigprocmask(SIG_BLOCK, &traps, &old) == 0 && !sigismember(&old, SIGTRAP));
    send(VALUE);
    __atomic_fetch_add(&shared[0], 0, __ATOMIC_SEQ_CST);
    EXPECT(sigprocmask(SIG_BLOCK, 0, &now) == 0 && sigismember(&now, SIGTRAP) && sent == before + 4);
    EXPECT(sigprocmask(SIG_SETMASK, &old, 0) == 0 && sent == before + 5);
    struct sigaction blocking = {.sa_handler = blocks, .sa_mask = traps};
    EXPECT(sigaction(SIGUSR1, &blocking, 0) == 0 && raise(SIGUSR1) == 0 && sent == before + 6);
    return sent - before;
}

int main(void) {
    const unsigned node = bz_node();
    struct sigaction action = {.sa_flags = SA_SIGINFO}, asked;
    action.sa_sigaction = handle;
    sigemptyset(&action.sa_mask);
    EXPECT(sigaction(SIGTRAP, &action, 0) == 0 && sigaction(SIGTRAP, 0, &asked) == 0 && asked.sa_sigaction == handle);
    if (node == 0) bz_publish(0, bz_alloc(WORDS * 64));
    shared = bz_lookup(0);
    bz_barrier();

    uint64_t counted = count(1);
    EXPECT(breakpoints == EVERY && sent == EVERY);
    const uint64_t blocked = bz_nodes() > 1 ? send_while_blocked() : 0;

    const uint64_t among = break_among_alarms();
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGTRAP, .sigev_value.sival_int = VALUE};
    const struct itimerspec every = {.it_interval.tv_nsec = 50000, .it_value.tv_nsec = 50000}, never = {0};
    timer_t timer;
    EXPECT(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &every, 0) == 0);
    counted += count(0);
    const struct timespec second = {.tv_sec = 1};
    EXPECT(nanosleep(&second, 0) == -1 && errno == EINTR);
    EXPECT(timer_settime(timer, 0, &never, 0) == 0 && timer_delete(timer) == 0);
    EXPECT(breakpoints == 2 * EVERY + among && sent == EVERY + blocked && timed > 0);

    const uint64_t expected = bz_reduce_sum_u64(counted + WORDS * (breakpoints + sent + timed));
    bz_barrier();
    uint64_t sum = 0;
    for (int k = 0; k < WORDS; k++) sum += shared[k * 8];
    EXPECT(sum == expected);
    strange = bz_reduce_sum_u64(strange);
    if (node == 0) printf("strange %lu\n", (unsigned long)strange);
    return strange != 0;
}
