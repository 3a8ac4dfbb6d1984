//# nodes: 1 2
/* Timers: section 3.5, and their place in the order of events, section 2. The unit is a microsecond. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000l + t.tv_nsec / 1000;
}

static volatile int fired, last;
static volatile long fired_at;
static int words[64];
static void fire(void *user_ptr) {
    fired++;
    last = *(int *)user_ptr;
    fired_at = now();
}

/* Not before its time, once, with its pointer; while the program computes. */
static void one(void) {
    words[0] = 42;
    long start = now();
    TPPI_schedule_timer(3000, fire, &words[0]);
    while (!fired) /* No call of the runtime, only polls. */
        ;
    EXPECT("3.5", last == 42 && fired_at - start >= 3000);
    TPPI_schedule_timer(0, fire, &words[0]);
    TPPI_schedule_timer(-5, fire, &words[0]);
    WAIT_UNTIL(fired == 3);
    long until = now() + 5000;
    WAIT_UNTIL(now() > until);
    EXPECT("3.5", fired == 3);
}

/* In the order of their times, whatever the order of scheduling. A timer's time is between what the clock says before and after the call. */
static volatile int order[64], orders;
static long earliest[64], latest[64];
static void note(void *user_ptr) { order[orders++] = *(int *)user_ptr; }
static void many(void) {
    int certain = 0;
    for (int i = 0; i < 50; i++) {
        int ticks = 2000 + 1000 * ((i * 37) % 50);
        words[i] = i;
        earliest[i] = now() + ticks;
        TPPI_schedule_timer(ticks, note, &words[i]);
        latest[i] = now() + 1 + ticks;
    }
    WAIT_UNTIL(orders == 50);
    for (int a = 0; a < 50; a++)
        for (int b = a + 1; b < 50; b++) {
            EXPECT("3.5", order[a] != order[b] && !(latest[order[b]] < earliest[order[a]]));
            certain += latest[order[a]] < earliest[order[b]];
        }
    EXPECT("3.5", certain > 600);
}

/* A handler may schedule the next one. */
static volatile int chain;
static void again(void *user_ptr) {
    if (++chain < 20) TPPI_schedule_timer(100, again, user_ptr);
}
static void chained(void) {
    TPPI_schedule_timer(100, again, 0);
    WAIT_UNTIL(chain == 20);
}

/* A thread that is suspended by a fault is resumed by a timer; one that sleeps is woken by one (A.2.6). */
static volatile int faulted;
static void grant(void *user_ptr) {
    TPPI_change_blk_acc(user_ptr, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RW);
    TPPI_resume_va(user_ptr, TPPI_TAG_BLK_SIZE);
}
static void later(void *va, void *usr_ptr, TPPI_NodeId home) {
    (void)usr_ptr, (void)home;
    faulted++;
    TPPI_schedule_timer(2000, grant, va);
}
static volatile int semaphore;
static void wake(void *user_ptr) {
    (void)user_ptr;
    TPPI_wakeup(&semaphore);
}
static void waits(void) {
    TPPI_register_blk_acc_fault_handler(1, TPPI_Blk_Invalid, TPPI_WriteAccess, later);
    TPPI_alloc_and_map(page(0), 1, TPPI_Blk_Invalid, 0, 0);
    long start = now();
    store(page(0) + 8, 5);
    EXPECT("3.6", now() - start >= 2000 && faulted == 1 && load(page(0) + 8) == 5);
    start = now();
    TPPI_schedule_timer(2000, wake, 0);
    TPPI_sleep(&semaphore);
    EXPECT("A.2.6", now() - start >= 2000 && semaphore == 0);
    TPPI_atomic_incr(&semaphore);
    EXPECT("A.2.6", semaphore == 1);
    TPPI_schedule_timer(1000, wake, 0);
    TPPI_schedule_timer(2000, wake, 0);
    TPPI_sleep(&semaphore);
    EXPECT("A.2.6", semaphore == 0);
    TPPI_wakeup(&semaphore);
    TPPI_sleep(&semaphore); /* Wakened before: does not wait. */
    EXPECT("A.2.6", semaphore == 0);
}

/* Section 2: a due timer comes before a message. */
static volatile int sequence[4], steps;
static void by_timer(void *user_ptr) {
    (void)user_ptr;
    sequence[steps++] = 1;
}
static void by_message(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    sequence[steps++] = 2;
}
static void first_message(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    TPPI_send(TPPI_self_address, by_message);
    TPPI_schedule_timer(100, by_timer, 0);
    long until = now() + 20000; /* Both are pending when this handler ends. */
    while (now() < until)
        ;
    EXPECT("2", steps == 0);
}
static void priorities(void) {
    TPPI_send(TPPI_self_address, first_message);
    WAIT_UNTIL(steps == 2);
    EXPECT("2", sequence[0] == 1 && sequence[1] == 2);
}

/* What runs timers in code without polls is not seen: no call is given up, or ends early, because of a timer. The number of the signal is the program's, too. */
static volatile int often, own;
static void oftener(void *user_ptr) {
    if (often >= 0) often++, TPPI_schedule_timer(200, oftener, user_ptr);
}
static void on_own(int signal) { own += signal == 33; }
static void calls(void) {
    if (bz_nodes() != 1) return;
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } action = {0};
    struct sigaction like;
    signal(SIGUSR1, on_own);
    /* With the C library's way to return. */
    EXPECT("calls", syscall(SYS_rt_sigaction, SIGUSR1, 0, &action, 8) == 0 && sigaction(SIGUSR1, 0, &like) == 0);
    EXPECT("calls", syscall(SYS_rt_sigaction, 33, &action, 0, 8) == 0);
    TPPI_schedule_timer(200, oftener, 0);
    for (int i = 0; i < 100; i++) {
        struct timespec t = {0, 2000000};
        long start = now();
        EXPECT("calls", nanosleep(&t, 0) == 0 && now() - start >= 2000);
        int before = often;
        while (often == before) /* Only plain code. */
            ;
        if (i % 10 == 0) EXPECT("calls", syscall(SYS_tgkill, getpid(), gettid(), 33) == 0 && own == i / 10 + 1);
        if (i % 20 == 0) EXPECT("calls", system("exit 3") == 3 << 8);
    }
    often = -1;
}

int main(void) {
    one();
    calls();
    many();
    chained();
    waits();
    priorities();
    return done();
}
