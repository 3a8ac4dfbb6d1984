//# nodes: 1
/* A second thread beside the one that uses the interface: section 2 holds for the first, and the second is left alone. */
#define _GNU_SOURCE
#include "taken.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int elsewhere, over, alarms[2], calls, wrong;
static pthread_t first;

static void take_here(TPPI_NodeId src, int size) {
    elsewhere += !pthread_equal(pthread_self(), first);
    take(src, size);
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

int main(void) {
    first = pthread_self();
    prepare();
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
            TPPI_send(TPPI_self_address, take_here);
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
