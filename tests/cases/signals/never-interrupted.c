//# flags: -O0 | -O2
//# link: -pie | -static
//# nodes: 2 3
//# guarded-nodes: 2
/* Calls that the kernel finishes at once are never interrupted: not by a handler without SA_RESTART either that runs while a peer has called this node just
 * before the call. And a vfork child does not find blocked what came on the way into the call. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 1600, CHILDREN = 160, WORDS = 8 };
static uint64_t *shared;
static volatile uint64_t handled;

static void handle(int number) {
    (void)number;
    handled++;
    (void)getppid();
    __atomic_fetch_add(&shared[handled % WORDS * 8], 1, __ATOMIC_SEQ_CST);
}

static int blocked_in_child(void) {
    int status;
    const pid_t child = vfork();
    if (child == 0) {
        sigset_t mask;
        sigprocmask(SIG_BLOCK, 0, &mask);
        _exit(sigismember(&mask, SIGALRM));
    }
    while (waitpid(child, &status, 0) == -1 && errno == EINTR) continue;
    return child == -1 || status != 0;
}

int main(void) {
    const unsigned node = bz_node();
    uint64_t failed = 0, counted = 0;
    if (node == 0) bz_publish(0, bz_alloc(WORDS * 64));
    shared = bz_lookup(0);
    struct sigaction action = {.sa_handler = handle};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGALRM, &action, 0)) failed++;
    bz_barrier();
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    const struct itimerspec every = {.it_interval.tv_nsec = 100000, .it_value.tv_nsec = 100000}, never = {0};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &every, 0)) failed++;
    for (int n = 0; n < ROUNDS; n++) {
        __atomic_fetch_add(&shared[n % WORDS * 8], 1, __ATOMIC_SEQ_CST);
        counted++;
        struct rusage usage;
        struct stat status;
        struct itimerspec left;
        struct timespec none = {0, 1};
        if (getrusage(RUSAGE_SELF, &usage)) failed++;
        if (fstat(2, &status)) failed++;
        if (timer_gettime(timer, &left)) failed++;
        /* One instruction makes calls of both kinds. */
        if (syscall(SYS_nanosleep, &none, 0) && errno != EINTR) failed++;
        if (syscall(SYS_getrusage, RUSAGE_SELF, &usage)) failed++;
        if (n % (ROUNDS / CHILDREN) == 0) failed += blocked_in_child();
    }
    if (timer_settime(timer, 0, &never, 0) || timer_delete(timer)) failed++;
    const uint64_t handled_then = handled;
    const uint64_t expected = bz_reduce_sum_u64(counted + handled);
    failed += handled == 0 || handled != handled_then;
    bz_barrier();
    uint64_t sum = 0;
    for (int k = 0; k < WORDS; k++) sum += shared[k * 8];
    failed += sum != expected;
    failed = bz_reduce_sum_u64(failed);
    if (node == 0) printf("failed %lu\n", (unsigned long)failed);
    return failed != 0;
}
