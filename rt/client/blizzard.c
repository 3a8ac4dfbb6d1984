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
#define API_VERSION 2u

static void die(const char *what) {
    fprintf(stderr, "blizzard: error: %s\n", what);
    abort();
}

/* ---- one node, without a runtime ---- */

static unsigned bz_plain_node(void) { return 0; }
static unsigned bz_plain_nodes(void) { return 1; }

/* Null, and a line, as the runtime says it: few programs look at the result. */
static void *bz_plain_zeroed(const char *function, size_t bytes, size_t block) {
    void *p = NULL;
    size_t rounded = ((bytes ? bytes : 1) + block - 1) & ~(block - 1);
    if (rounded < bytes || posix_memalign(&p, block, rounded) != 0) {
        fprintf(stderr, "blizzard: warning: %s: no room for %zu bytes: the process's memory is exhausted\n", function, bytes);
        return NULL;
    }
    return memset(p, 0, rounded);
}

static void *bz_plain_alloc(size_t bytes) { return bz_plain_zeroed("bz_alloc", bytes, 64); }

static void *bz_plain_alloc_on(unsigned home, size_t bytes) {
    if (home != 0) die("bz_alloc_on: there is no such node");
    return bz_plain_zeroed("bz_alloc_on", bytes, 64);
}

/* What each word of fresh memory is, as Operation::initial of rt/protocol/src/operation.rs says; 0: the protocol has no such operation. */
static int initial_word(uint32_t protocol, uint64_t *word) {
    static const uint64_t low[] = {0xffffffffffffffff, 0x7fffffff7fffffff, 0xffffffffffffffff,
                                   0x7fffffffffffffff, 0x7f8000007f800000, 0x7ff0000000000000};
    static const uint64_t high[] = {0, 0x8000000080000000, 0, 0x8000000000000000, 0xff800000ff800000, 0xfff0000000000000};
    uint32_t number = protocol >> 8;
    if ((protocol & 255) != BZ_PROTOCOL_REDUCE) return number == 0;
    if (number < 1 || number > 6 * BZ_BY_OR + 4) return 0;
    uint32_t operation = (number - 1) / 6, type = (number - 1) % 6;
    *word = operation == BZ_BY_MIN ? low[type] : operation == BZ_BY_MAX ? high[type] : 0;
    return 1;
}

static void *bz_plain_alloc_with(size_t bytes, uint32_t block_bytes, uint32_t homes, uint32_t node, uint32_t protocol) {
    size_t block = block_bytes ? block_bytes : 64;
    if (block < 64 || block > 4096 || (block & (block - 1)))
        die("bz_alloc_with: the block size is none of 64, 128, 256, 512, 1024, 2048, 4096");
    if (homes > BZ_HOMES_SLICES) die("bz_alloc_with: homes is none of the BZ_HOMES constants");
    if ((protocol & 255) > BZ_PROTOCOL_REDUCE) die("bz_alloc_with: protocol is none of the BZ_PROTOCOL constants");
    uint64_t initial = 0;
    if (!initial_word(protocol, &initial)) die("bz_alloc_with: the protocol is not one with that operation: BZ_PROTOCOL_REDUCE_BY(operation, type) makes one");
    if (homes == BZ_HOMES_NODE && node != 0) die("bz_alloc_with: there is no such node");
    void *p = bz_plain_zeroed("bz_alloc_with", bytes, block);
    if (p && initial) {
        size_t rounded = ((bytes ? bytes : 1) + block - 1) & ~(block - 1);
        for (size_t at = 0; at < rounded; at += 8) memcpy((char *)p + at, &initial, 8);
    }
    return p;
}

static void bz_plain_free(void *p) { free(p); }

static pthread_mutex_t slots_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t slots_changed = PTHREAD_COND_INITIALIZER;
static struct { void *p; int set; } slots[BZ_SLOTS];

static void bz_plain_publish(unsigned slot, void *p) {
    if (slot >= BZ_SLOTS) die("bz_publish: the slot is not below 1024");
    pthread_mutex_lock(&slots_mutex);
    slots[slot].p = p;
    slots[slot].set = 1;
    pthread_cond_broadcast(&slots_changed);
    pthread_mutex_unlock(&slots_mutex);
}

static void *bz_plain_lookup(unsigned slot) {
    if (slot >= BZ_SLOTS) die("bz_lookup: the slot is not below 1024");
    pthread_mutex_lock(&slots_mutex);
    while (!slots[slot].set) pthread_cond_wait(&slots_changed, &slots_mutex);
    void *p = slots[slot].p;
    pthread_mutex_unlock(&slots_mutex);
    return p;
}

static void bz_plain_barrier(void) {}

/* Error checking, so that misuse ends a plain run as it ends a rewritten one. */
struct bz_lock { pthread_mutex_t mutex; };

static bz_lock_t *bz_plain_lock_new(void) {
    bz_lock_t *lock = malloc(sizeof *lock);
    pthread_mutexattr_t attr;
    if (!lock) die("bz_lock_new: out of memory");
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&lock->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    return lock;
}

static void bz_plain_lock(bz_lock_t *lock) {
    if (pthread_mutex_lock(&lock->mutex) != 0) die("bz_lock: the caller holds the lock already");
}

static int bz_plain_trylock(bz_lock_t *lock) { return pthread_mutex_trylock(&lock->mutex) == 0; }

static void bz_plain_unlock(bz_lock_t *lock) {
    if (pthread_mutex_unlock(&lock->mutex) != 0) die("bz_unlock: the caller does not hold the lock");
}

static uint64_t bz_plain_fetch_add(uint64_t *p, uint64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static uint64_t bz_plain_sum_u64(uint64_t v) { return v; }
static double bz_plain_sum_f64(double v) { return v; }

static unsigned bz_plain_create(void) {
    die("bz_create: a program that is not run by `blizzard run` has one node");
    return 0;
}
static void bz_plain_created(int pid) { (void)pid; }
static void bz_plain_prefetch(const void *p, size_t bytes, int store) { (void)p, (void)bytes, (void)store; }
static void bz_plain_check_in(const void *p, size_t bytes) { (void)p, (void)bytes; }

static void bz_plain_wait_for_end(unsigned count) {
    if (count != 0) die("bz_wait_for_end: the program waits for nodes to end, but has created none");
}

struct bz_barrier { char unused; };

static bz_barrier_t *bz_plain_barrier_new(void) {
    bz_barrier_t *barrier = malloc(sizeof *barrier);
    if (!barrier) die("bz_barrier_new: out of memory");
    return barrier;
}

static int bz_plain_barrier_wait(bz_barrier_t *barrier, unsigned nodes) {
    (void)barrier;
    if (nodes != 1) die("bz_barrier_wait: a barrier for several nodes in a run of 1 can never complete");
    return 1;
}

struct bz_event {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int set;
};

static bz_event_t *bz_plain_event_new(void) {
    bz_event_t *event = calloc(1, sizeof *event);
    if (!event) die("bz_event_new: out of memory");
    pthread_mutex_init(&event->mutex, NULL);
    pthread_cond_init(&event->changed, NULL);
    return event;
}

static void bz_plain_event_set(bz_event_t *event, int on) {
    pthread_mutex_lock(&event->mutex);
    event->set = on;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->mutex);
}

static void bz_plain_event_wait(bz_event_t *event) {
    pthread_mutex_lock(&event->mutex);
    while (!event->set) pthread_cond_wait(&event->changed, &event->mutex);
    pthread_mutex_unlock(&event->mutex);
}

struct bz_counter { uint64_t value; };

static bz_counter_t *bz_plain_counter_new(uint64_t value) {
    bz_counter_t *counter = malloc(sizeof *counter);
    if (!counter) die("bz_counter_new: out of memory");
    counter->value = value;
    return counter;
}

/* Op::apply of rt/src/sync/op.rs. */
static uint64_t applied(unsigned op, uint64_t old, uint64_t v, uint64_t expected) {
    switch (op) {
    case BZ_ADD: return old + v;
    case BZ_AND: return old & v;
    case BZ_OR: return old | v;
    case BZ_XOR: return old ^ v;
    case BZ_SWAP: return v;
    case BZ_MIN_U64: return v < old ? v : old;
    case BZ_MAX_U64: return v > old ? v : old;
    case BZ_MIN_I64: return (int64_t)v < (int64_t)old ? v : old;
    case BZ_MAX_I64: return (int64_t)v > (int64_t)old ? v : old;
    case BZ_COMPARE_SWAP: return old == expected ? v : old;
    case BZ_ADD_F64: {
        double a, b;
        memcpy(&a, &old, sizeof a);
        memcpy(&b, &v, sizeof b);
        a += b;
        memcpy(&old, &a, sizeof a);
        return old;
    }
    }
    die("there is no such operation");
    return 0;
}

static uint64_t bz_plain_fetch_op(unsigned op, uint64_t *p, uint64_t v, uint64_t expected) {
    uint64_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, applied(op, old, v, expected), 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
    return old;
}

static uint64_t bz_plain_counter_op(unsigned op, bz_counter_t *counter, uint64_t v, uint64_t expected) {
    return bz_plain_fetch_op(op, &counter->value, v, expected);
}

static void bz_plain_reduce(unsigned kind, uint64_t *words, unsigned count) {
    (void)words, (void)count;
    if (kind > 8) die("bz_reduce: there is no such reduction");
    if (!words) die("bz_reduce: a null pointer");
}

static void bz_plain_broadcast(unsigned root, void *p, size_t bytes) {
    (void)bytes;
    if (root != 0) die("bz_broadcast: there is no such node");
    if (!p) die("bz_broadcast: a null pointer");
}

static void bz_plain_remote_write(unsigned node, void *to, const void *from, size_t bytes) {
    if (node != 0) die("bz_remote_write: there is no such node");
    if (!to || !from) die("bz_remote_write: a null pointer");
    memmove(to, from, bytes);
}

static void bz_plain_remote_fence(void) {}

static const struct bz_api plain = {
    API_VERSION, sizeof plain, bz_plain_node, bz_plain_nodes, bz_plain_alloc, bz_plain_alloc_on, bz_plain_free, bz_plain_publish,
    bz_plain_lookup, bz_plain_barrier, bz_plain_lock_new, bz_plain_lock, bz_plain_trylock, bz_plain_unlock, bz_plain_fetch_add,
    bz_plain_sum_u64, bz_plain_sum_f64, bz_plain_create, bz_plain_created, bz_plain_wait_for_end,
    bz_plain_prefetch, bz_plain_prefetch, bz_plain_check_in,
    bz_plain_barrier_new, bz_plain_barrier_wait, bz_plain_event_new, bz_plain_event_set, bz_plain_event_wait, bz_plain_counter_new,
    bz_plain_counter_op, bz_plain_fetch_op, bz_plain_reduce, bz_plain_broadcast, bz_plain_remote_write, bz_plain_remote_fence, NULL,
    bz_plain_alloc_with,
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
void *bz_alloc_with(const bz_attr_t *attributes, size_t bytes) {
    /* The runtime takes no pointers: the attributes may lie in shared memory, and are read with checks here. */
    bz_attr_t a = {0, 0, 0, 0};
    if (attributes) a = *attributes;
    return api()->alloc_with(bytes, a.block_bytes, a.homes, a.node, a.protocol);
}
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
void bz_get(void *to, const void *from, size_t bytes) {
    bz_check_out(from, bytes, 0);
    memcpy(to, from, bytes);
}
void bz_put(void *to, const void *from, size_t bytes) {
    bz_check_out(to, bytes, 1);
    memcpy(to, from, bytes);
}
void bz_check_in(const void *p, size_t bytes) { api()->check_in(p, bytes); }
uint64_t bz_reduce_sum_u64(uint64_t v) { return api()->reduce_sum_u64(v); }
double bz_reduce_sum_f64(double v) { return api()->reduce_sum_f64(v); }

bz_barrier_t *bz_barrier_new(void) { return api()->barrier_new(); }
int bz_barrier_wait(bz_barrier_t *barrier, unsigned nodes) { return api()->barrier_wait(barrier, nodes); }
bz_event_t *bz_event_new(void) { return api()->event_new(); }
void bz_event_set(bz_event_t *event) { api()->event_set(event, 1); }
void bz_event_clear(bz_event_t *event) { api()->event_set(event, 0); }
void bz_event_wait(bz_event_t *event) { api()->event_wait(event); }
bz_counter_t *bz_counter_new(uint64_t value) { return api()->counter_new(value); }
uint64_t bz_counter_op(bz_counter_t *counter, bz_op_t op, uint64_t v, uint64_t expected) {
    return api()->counter_op(op, counter, v, expected);
}
uint64_t bz_fetch_op_u64(uint64_t *p, bz_op_t op, uint64_t v, uint64_t expected) {
    return api()->fetch_op(op, p, v, expected);
}
uint64_t bz_fetch_and_u64(uint64_t *p, uint64_t v) { return bz_fetch_op_u64(p, BZ_AND, v, 0); }
uint64_t bz_fetch_or_u64(uint64_t *p, uint64_t v) { return bz_fetch_op_u64(p, BZ_OR, v, 0); }
uint64_t bz_fetch_xor_u64(uint64_t *p, uint64_t v) { return bz_fetch_op_u64(p, BZ_XOR, v, 0); }
uint64_t bz_fetch_min_u64(uint64_t *p, uint64_t v) { return bz_fetch_op_u64(p, BZ_MIN_U64, v, 0); }
uint64_t bz_fetch_max_u64(uint64_t *p, uint64_t v) { return bz_fetch_op_u64(p, BZ_MAX_U64, v, 0); }
uint64_t bz_swap_u64(uint64_t *p, uint64_t v) { return bz_fetch_op_u64(p, BZ_SWAP, v, 0); }
uint64_t bz_compare_swap_u64(uint64_t *p, uint64_t expected, uint64_t v) {
    return bz_fetch_op_u64(p, BZ_COMPARE_SWAP, v, expected);
}

/* The runtime takes private memory only: what the caller gives is copied here, with checks. A null pointer goes on to it as it is, so that the
 * run ends with the function's name. */
enum { REDUCED_WORDS = 8, BROADCAST_BYTES = 8192 };

void bz_reduce(bz_reduction_t kind, void *words, size_t count) {
    uint64_t part[REDUCED_WORDS], *all = words;
    if (!words && count) api()->reduce(kind, NULL, 1);
    for (size_t done = 0; done < count; done += REDUCED_WORDS) {
        size_t n = count - done < REDUCED_WORDS ? count - done : REDUCED_WORDS;
        for (size_t i = 0; i < n; i++) part[i] = all[done + i];
        api()->reduce(kind, part, (unsigned)n);
        for (size_t i = 0; i < n; i++) all[done + i] = part[i];
    }
}

#define REDUCTIONS(name, kind)                              \
    uint64_t bz_reduce_##name##_u64(uint64_t v) {           \
        bz_reduce(kind##_U64, &v, 1);                       \
        return v;                                           \
    }                                                       \
    int64_t bz_reduce_##name##_i64(int64_t v) {             \
        bz_reduce(kind##_I64, &v, 1);                       \
        return v;                                           \
    }                                                       \
    double bz_reduce_##name##_f64(double v) {               \
        bz_reduce(kind##_F64, &v, 1);                       \
        return v;                                           \
    }
REDUCTIONS(min, BZ_REDUCE_MIN)
REDUCTIONS(max, BZ_REDUCE_MAX)

int64_t bz_reduce_sum_i64(int64_t v) { return (int64_t)bz_reduce_sum_u64((uint64_t)v); }

void bz_broadcast(unsigned root, void *p, size_t bytes) {
    char part[BROADCAST_BYTES], *all = p;
    if (!p && bytes) api()->broadcast(root, NULL, 1);
    for (size_t done = 0; done < bytes; done += BROADCAST_BYTES) {
        size_t n = bytes - done < BROADCAST_BYTES ? bytes - done : BROADCAST_BYTES;
        if (bz_node() == root) memcpy(part, all + done, n);
        api()->broadcast(root, part, n);
        if (bz_node() != root) memcpy(all + done, part, n);
    }
}

void bz_remote_write(unsigned node, void *to, const void *from, size_t bytes) {
    char part[4096];
    if ((!to || !from) && bytes) api()->remote_write(node, to, from, 1);
    for (size_t done = 0; done < bytes; done += sizeof part) {
        size_t n = bytes - done < sizeof part ? bytes - done : sizeof part;
        memcpy(part, (const char *)from + done, n);
        api()->remote_write(node, (char *)to + done, part, n);
    }
}

void bz_remote_fence(void) { api()->remote_fence(); }
void bz_flush(void) { api()->remote_fence(); }
