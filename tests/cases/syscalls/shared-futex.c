//# uses: blizzard
//# flags: -O0 | -O2
//# compilers: gcc
//# link: -pthread
//# nodes: 2 3
/* POSIX objects for several processes work in shared memory. Waits for them that have a time limit never ended: each gave way once and reported a
 * wake-up, after which the C library waited anew. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct shared {
    sem_t sem;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    pthread_barrier_t barrier;
    volatile int flag;
    volatile long count;
    uint32_t word;
    struct timespec time;
};
static struct shared *s;

static struct timespec soon(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += 30000000;
    if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
    return time;
}

static void make(unsigned nodes) {
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    pthread_barrierattr_t barrier;
    s = bz_alloc(sizeof *s);
    sem_init(&s->sem, 1, 0);
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&s->mutex, &mutex);
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&s->cond, &cond);
    pthread_barrierattr_init(&barrier);
    pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&s->barrier, &barrier, nodes);
    bz_publish(0, s);
}

int main(void) {
    unsigned me = bz_node(), nodes = bz_nodes();
    if (me == 0) make(nodes);
    s = bz_lookup(0);
    bz_barrier();
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&s->mutex);
        s->count++;
        pthread_mutex_unlock(&s->mutex);
    }
    pthread_barrier_wait(&s->barrier);
    pthread_mutex_lock(&s->mutex);
    if (me == nodes - 1) {
        s->flag = 1;
        pthread_cond_broadcast(&s->cond);
    }
    while (!s->flag) pthread_cond_wait(&s->cond, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    pthread_barrier_wait(&s->barrier);
    if (me == 0) {
        printf("%d ", s->count == 100 * (long)nodes);
        s->time = soon(CLOCK_REALTIME);
        int result = sem_timedwait(&s->sem, &s->time);
        printf("%d %d ", result, errno == ETIMEDOUT);
        pthread_mutex_lock(&s->mutex);
        struct timespec time = soon(CLOCK_REALTIME);
        printf("%d ", pthread_cond_timedwait(&s->cond, &s->mutex, &time) == ETIMEDOUT);
        pthread_mutex_unlock(&s->mutex);
        s->time = (struct timespec){.tv_nsec = 20000000};
        printf("%d ", syscall(SYS_futex, &s->word, FUTEX_WAIT, 0, &s->time, 0, 0) == -1 && errno == ETIMEDOUT);
        time = soon(CLOCK_MONOTONIC);
        while (syscall(SYS_futex, &s->word, FUTEX_WAIT_BITSET, 0, &time, 0, -1) == 0) {
        }
        printf("%d ", errno == ETIMEDOUT);
        printf("%d ", syscall(SYS_futex, &s->word, FUTEX_WAIT, 1, 0, 0, 0) == -1 && errno == EAGAIN);
        time.tv_nsec = -1;
        printf("%d\n", syscall(SYS_futex, &s->word, FUTEX_WAIT, 0, &time, 0, 0) == -1 && errno == EINVAL);
    }
    bz_barrier();
    return 0;
}
