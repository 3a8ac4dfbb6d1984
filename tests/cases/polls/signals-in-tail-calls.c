//# flags: -O2
//# link: -pie | -no-pie | -static
//# nodes: 2
/* A signal that is put off waits for a poll. A cycle of tail calls through a pointer had none, so the handler never ran. From the timer's end to
 * the handler at most a millisecond of processor time may pass; the least of all rounds counts, because others use the processor, too. */
#include "blizzard.h"
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

typedef void (*Step)(void);
static Step volatile next;
static volatile int stop;
static uint64_t used;

static uint64_t processor_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
static void handle(int number) {
    (void)number;
    used = processor_ns();
    stop = 1;
}
__attribute__((noinline)) static void step(void) {
    if (!stop) {
        next();
    }
}

int main(void) {
    next = step;
    signal(SIGPROF, handle);
    uint64_t least = UINT64_MAX;
    for (int round = 0; round < 8; round++) {
        stop = 0;
        uint64_t begin = processor_ns();
        const struct itimerval after = {.it_value = {.tv_usec = 8000}};
        setitimer(ITIMER_PROF, &after, NULL);
        step();
        uint64_t late = used - begin - 8000000;
        least = late < least ? late : least;
    }
    /* The kernel looks at such timers at its ticks, up to 10 ms apart. */
    if (bz_node() == 0) {
        printf("%s\n", least < 11000000 ? "handled in time" : "late");
    }
    bz_barrier();
    return 0;
}
