/* The client library of blizzard.h.
 *
 * A rewritten program finds the runtime's function table in its auxiliary vector (AT_BLIZZARD, see rt/src/abi.rs) and
 * calls through it. A program that was not rewritten has no such entry: then the functions below are a complete run of
 * one node, so that every program has a plain reference.
 */
#define _GNU_SOURCE
#include "client.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#define AT_BLIZZARD 0x425a0001ul
#define API_VERSION 1u

static void die(const char *what) {
    fprintf(stderr, "blizzard: error: %s\n", what);
    abort();
}

/* ---- one node, without a runtime ---- */

static unsigned plain_node(void) { return 0; }
static unsigned plain_nodes(void) { return 1; }

static void *plain_alloc(size_t bytes) {
    void *p = NULL;
    size_t rounded = (bytes + 63) & ~(size_t)63;
    if (rounded < bytes || posix_memalign(&p, 64, rounded ? rounded : 64) != 0) return NULL;
    return memset(p, 0, rounded ? rounded : 64);
}

static void *plain_alloc_on(unsigned home, size_t bytes) {
    if (home != 0) die("bz_alloc_on: there is no such node");
    return plain_alloc(bytes);
}

static void plain_free(void *p) { free(p); }

static pthread_mutex_t slots_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t slots_changed = PTHREAD_COND_INITIALIZER;
static struct { void *p; int set; } slots[BZ_SLOTS];

static void plain_publish(unsigned slot, void *p) {
    if (slot >= BZ_SLOTS) die("bz_publish: the slot is not below 1024");
    pthread_mutex_lock(&slots_mutex);
    slots[slot].p = p;
    slots[slot].set = 1;
    pthread_cond_broadcast(&slots_changed);
    pthread_mutex_unlock(&slots_mutex);
}

static void *plain_lookup(unsigned slot) {
    if (slot >= BZ_SLOTS) die("bz_lookup: the slot is not below 1024");
    pthread_mutex_lock(&slots_mutex);
    while (!slots[slot].set) pthread_cond_wait(&slots_changed, &slots_mutex);
    void *p = slots[slot].p;
    pthread_mutex_unlock(&slots_mutex);
    return p;
}

static void plain_barrier(void) {}

/* Error checking, so that misuse ends a plain run as it ends a rewritten one. */
struct bz_lock { pthread_mutex_t mutex; };

static bz_lock_t *plain_lock_new(void) {
    bz_lock_t *lock = malloc(sizeof *lock);
    pthread_mutexattr_t attr;
    if (!lock) die("bz_lock_new: out of memory");
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&lock->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    return lock;
}

static void plain_lock(bz_lock_t *lock) {
    if (pthread_mutex_lock(&lock->mutex) != 0) die("bz_lock: the caller holds the lock already");
}

static int plain_trylock(bz_lock_t *lock) { return pthread_mutex_trylock(&lock->mutex) == 0; }

static void plain_unlock(bz_lock_t *lock) {
    if (pthread_mutex_unlock(&lock->mutex) != 0) die("bz_unlock: the caller does not hold the lock");
}

static uint64_t plain_fetch_add(uint64_t *p, uint64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static uint64_t plain_sum_u64(uint64_t v) { return v; }
static double plain_sum_f64(double v) { return v; }

static unsigned plain_create(void) {
    die("bz_create: a program that is not run by `blizzard run` has one node");
    return 0;
}
static void plain_created(int pid) { (void)pid; }
static void plain_prefetch(const void *p, size_t bytes, int store) { (void)p, (void)bytes, (void)store; }
static void plain_check_in(const void *p, size_t bytes) { (void)p, (void)bytes; }

static void plain_wait_for_end(unsigned count) {
    if (count != 0) die("bz_wait_for_end: the program waits for nodes to end, but has created none");
}

static const struct bz_api plain = {
    API_VERSION, sizeof plain, plain_node, plain_nodes, plain_alloc, plain_alloc_on, plain_free, plain_publish,
    plain_lookup, plain_barrier, plain_lock_new, plain_lock, plain_trylock, plain_unlock, plain_fetch_add,
    plain_sum_u64, plain_sum_f64, plain_create, plain_created, plain_wait_for_end,
    plain_prefetch, plain_prefetch, plain_check_in,
};

/* ---- dispatch ---- */

const struct bz_api *bz_client_api(void) {
    static const struct bz_api *found;
    const struct bz_api *a = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (!a) {
        /* getauxval sets errno where there is no such entry; the caller's errno is none of our business. */
        int saved = errno;
        a = (const struct bz_api *)getauxval(AT_BLIZZARD);
        errno = saved;
        if (!a) a = &plain;
        if (a->version != API_VERSION || a->bytes < sizeof plain) die("the program was built for another version of blizzard.h");
        __atomic_store_n(&found, a, __ATOMIC_RELAXED);
    }
    return a;
}

static const struct bz_api *api(void) { return bz_client_api(); }

unsigned bz_node(void) { return api()->node(); }
unsigned bz_nodes(void) { return api()->nodes(); }
void *bz_alloc(size_t bytes) { return api()->alloc(bytes); }
void *bz_alloc_on(unsigned home, size_t bytes) { return api()->alloc_on(home, bytes); }
void bz_free(void *p) { api()->free(p); }
void bz_publish(unsigned slot, void *p) { api()->publish(slot, p); }
void *bz_lookup(unsigned slot) { return api()->lookup(slot); }
void bz_barrier(void) { api()->barrier(); }
bz_lock_t *bz_lock_new(void) { return api()->lock_new(); }
void bz_lock(bz_lock_t *lock) { api()->lock(lock); }
int bz_trylock(bz_lock_t *lock) { return api()->trylock(lock); }
void bz_unlock(bz_lock_t *lock) { api()->unlock(lock); }
uint64_t bz_fetch_add_u64(uint64_t *p, uint64_t v) { return api()->fetch_add_u64(p, v); }
void bz_prefetch(const void *p, size_t bytes, int store) { api()->prefetch(p, bytes, store); }
void bz_check_out(const void *p, size_t bytes, int store) { api()->check_out(p, bytes, store); }
void bz_check_in(const void *p, size_t bytes) { api()->check_in(p, bytes); }
uint64_t bz_reduce_sum_u64(uint64_t v) { return api()->reduce_sum_u64(v); }
double bz_reduce_sum_f64(double v) { return api()->reduce_sum_f64(v); }
