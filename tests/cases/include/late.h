/* How late a signal is, in processor time.
 *
 * In a run of several nodes a signal waits for a poll. A timer of the monotonic clock, which the kernel keeps exactly, ends while `loop` runs; the
 * handler sets the word that ends the loop. Between the start of the loop and the timer's end the program used at most the time that went by. What it used
 * beyond that, it used after the timer's end. Others on the machine make this less and never more, and the median of many times counts. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LATE_TIMES = 25, LATE_LIMIT_NS = 1000000, LATE_AFTER_NS = 200000 };

static volatile unsigned late_stop;
static volatile int64_t late_used;

static int64_t late_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}

static void late_handler(int number) {
    (void)number;
    late_used = late_clock(CLOCK_THREAD_CPUTIME_ID);
    late_stop = 1;
}

static int late_order(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds; `loop` returns when the word that it is given is 1. */
static int64_t late_by(void (*loop)(volatile unsigned *)) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_t timer;
    signal(SIGALRM, late_handler);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer)) abort();
    int64_t late[LATE_TIMES];
    for (int k = 0; k < LATE_TIMES; k++) {
        late_stop = 0;
        int64_t used = late_clock(CLOCK_THREAD_CPUTIME_ID), begin = late_clock(CLOCK_MONOTONIC);
        /* Not always at the same place of the loop's period. */
        int64_t end = begin + LATE_AFTER_NS + k * 9973;
        struct itimerspec after = {.it_value = {end / 1000000000, end % 1000000000}};
        if (timer_settime(timer, TIMER_ABSTIME, &after, NULL)) abort();
        loop(&late_stop);
        late[k] = late_used - used - (end - begin);
    }
    timer_delete(timer);
    qsort(late, LATE_TIMES, sizeof *late, late_order);
    return late[LATE_TIMES / 2];
}

static const char *late_words(int64_t ns) { return ns < LATE_LIMIT_NS ? "in time" : "late"; }
