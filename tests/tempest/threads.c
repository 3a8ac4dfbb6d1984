//# nodes: 1
/* A second thread beside the one that uses the interface: section 2 holds for the first, and the second is left alone. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { GOOD = 0x600d, POISON = 0xbad };
static int good[TPPI_TAG_BLK_SIZE / sizeof(int)];
static volatile int taken, elsewhere, over, alarms[2], calls, wrong;
static char *b;
static pthread_t first;

static void take(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    elsewhere += !pthread_equal(pthread_self(), first);
    if (TPPI_get_blk_acc(b) == TPPI_Blk_Writable) {
        for (unsigned i = 0; i < TPPI_TAG_BLK_SIZE; i += sizeof(int)) store(b + i, POISON);
        TPPI_change_blk_acc(b, TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalidate);
    }
    taken++;
}
static void give(void *va, void *usr_ptr, TPPI_NodeId home) {
    (void)usr_ptr, (void)home;
    TPPI_change_blk_acc_and_copy(b, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RW, good);
    TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);
}
__attribute__((noinline)) static void polls(void) {
    for (volatile int i = 0; i < 8; i++)
        ;
}
static void polling(int signal) {
    (void)signal;
    alarms[!pthread_equal(pthread_self(), first)]++;
    polls();
}
static void one(int signal) { calls += signal == SIGUSR2; }
static void other(int signal) { calls += signal == SIGUSR2; }

/* Sets actions, is interrupted in calls, polls; its signals come at once. */
static void *second(void *ends) {
    for (int i = 0; !over; i++) {
        struct sigaction seen, set = {.sa_handler = i % 2 ? one : other};
        sigaction(SIGUSR2, &set, 0);
        sigaction(SIGUSR2, 0, &seen);
        int before = calls;
        pthread_kill(pthread_self(), SIGUSR2);
        wrong += seen.sa_handler != set.sa_handler || calls != before + 1;
        struct timespec t = {0, 100000};
        char byte;
        nanosleep(&t, 0);
        if (i % 8 == 0) wrong += read(((int *)ends)[0], &byte, 1) != -1 || errno != EINTR;
        polls();
    }
    return 0;
}

#define X4(x) x x x x
#define X64(x) X4(X4(X4(x)))
__attribute__((noinline)) static int loads(void) {
    int bad = 0;
    volatile int *at = (volatile int *)b;
    X4(X64(bad |= at[0] ^ GOOD; bad |= at[5] ^ GOOD;))
    return bad != 0;
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void) {
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++) good[i] = GOOD;
    first = pthread_self();
    b = block(0, 3);
    TPPI_register_blk_acc_fault_handler(1, TPPI_Blk_Invalid, TPPI_ReadAccess, give);
    EXPECT("3.1.3", TPPI_alloc_and_map(page(0), 1, TPPI_Blk_Invalid, 0, 0));
    int ends[2], bad = 0;
    pthread_t thread;
    EXPECT("signals", pipe(ends) == 0);
    struct sigaction action = {.sa_handler = polling};
    sigaction(SIGALRM, &action, 0);
    sigaction(SIGUSR1, &action, 0);
    EXPECT("signals", pthread_create(&thread, 0, second, ends) == 0);
    struct itimerval t = {{0, 80}, {0, 80}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &t, 0);
    for (double end = now() + 1; now() < end;) {
        for (int i = 0; i < 100; i++) {
            TPPI_send(TPPI_self_address, take);
            bad += loads();
        }
        pthread_kill(thread, SIGUSR1);
    }
    setitimer(ITIMER_REAL, &none, 0);
    over = 1;
    while (pthread_kill(thread, SIGUSR1) == 0 && pthread_tryjoin_np(thread, 0) != 0) sched_yield();
    EXPECT("2", bad == 0 && elsewhere == 0 && taken > 0);
    EXPECT("signals", wrong == 0 && calls > 0 && alarms[0] > 0 && alarms[1] > 0);
    return done();
}
