//# flags: -O0 | -O2
//# link: -pie | -no-pie | -pie -s
/* Threads in a run of one node: mutexes, condition variables, atomics, thread-local variables, once, keys with destructors. */
#include "arena.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 6, ROUNDS = 2000 };
static _Thread_local uint64_t mine;
static _Thread_local char text[64] = "initial";
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static pthread_barrier_t barrier;
static int turn, initialised, destroyed;
static uint64_t plain, order;
static _Atomic uint64_t counted;

static void initialise(void) { initialised++; }
static void destroy(void *value) { __atomic_fetch_add(&destroyed, (int)(intptr_t)value, __ATOMIC_RELAXED); }

static void *work(void *argument) {
    uint64_t id = (uint64_t)(intptr_t)argument;
    pthread_once(&once, initialise);
    pthread_setspecific(key, (void *)(intptr_t)(id + 1));
    snprintf(text, sizeof text, "thread %d", (int)id);
    for (int i = 0; i < ROUNDS; i++) {
        mine += id * (uint64_t)i;
        counted += mine & 1;
        pthread_mutex_lock(&mutex);
        plain += id;
        pthread_mutex_unlock(&mutex);
    }
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&mutex);
    while (turn != (int)id)
        pthread_cond_wait(&turn_changed, &mutex);
    order = order * 10 + id;
    puts(text);
    turn++;
    pthread_cond_broadcast(&turn_changed);
    pthread_mutex_unlock(&mutex);
    return (void *)(uintptr_t)mine;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_key_create(&key, destroy);
    pthread_barrier_init(&barrier, 0, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, work, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        mix((uint64_t)(uintptr_t)result);
    }
    mix(plain), mix(counted), mix(order), mix((uint64_t)initialised), mix((uint64_t)destroyed), mix(mine);
    puts(text);
    report("threads");
    return 0;
}
