/* blizzard_parmacs.h - what the macros of parmacs.m4 expand to, beyond blizzard.h. Programs do not include it themselves. In the C of 1989, as
 * the programs are. */
#ifndef BLIZZARD_PARMACS_H
#define BLIZZARD_PARMACS_H

#include <blizzard.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A self-scheduled loop, in shared memory. */
typedef struct {
    bz_counter_t *next;
    bz_barrier_t *end;
} bz_parmacs_loop_t;

static inline void bz_parmacs_loop_init(bz_parmacs_loop_t *loop) {
    loop->next = bz_counter_new(0);
    loop->end = bz_barrier_new();
}

/* The next of 0..last, or -1 when all have been given out and `nodes` nodes have come to know it. */
static inline long bz_parmacs_subscript(bz_parmacs_loop_t *loop, long last, unsigned nodes) {
    long subscript = (long)bz_counter_op(loop->next, BZ_ADD, 1, 0);
    if (subscript <= last) return subscript;
    /* Everybody has taken a number beyond the last before the loop begins again. */
    if (bz_barrier_wait(loop->end, nodes)) bz_counter_op(loop->next, BZ_SWAP, 0, 0);
    bz_barrier_wait(loop->end, nodes);
    return -1;
}

static inline void bz_parmacs_locks(bz_lock_t **locks, long count) {
    long i;
    for (i = 0; i < count; i++) locks[i] = bz_lock_new();
}

static inline void bz_parmacs_pauses(bz_event_t **pauses, long count) {
    long i;
    for (i = 0; i < count; i++) pauses[i] = bz_event_new();
}

/* All but the caller's own call of `fn`. */
static inline void bz_parmacs_create(void (*fn)(void), long nodes) {
    long i;
    for (i = 1; i < nodes; i++) bz_create(fn);
}

static inline void bz_parmacs_wait_for_end(long nodes) { bz_wait_for_created((unsigned)nodes); }

/* Most nodes of a run. */
#define BZ_PARMACS_NODES 1024

/* A condition variable, in shared memory: the nodes that wait, in the order of their coming, and an event for each node that has ever waited. */
typedef struct {
    bz_lock_t *lock;
    unsigned first, behind;
    unsigned waiting[BZ_PARMACS_NODES];
    bz_event_t *woken[BZ_PARMACS_NODES];
} bz_parmacs_condvar_t;

/* NULL if shared memory is full. */
static inline bz_parmacs_condvar_t *bz_parmacs_condvar_new(void) {
    bz_parmacs_condvar_t *condvar = (bz_parmacs_condvar_t *)bz_alloc(sizeof *condvar);
    if (condvar != NULL) condvar->lock = bz_lock_new();
    return condvar;
}

/* The caller holds `lock`, and holds it again when another node has woken it. */
static inline void bz_parmacs_condvar_wait(bz_parmacs_condvar_t *condvar, bz_lock_t *lock) {
    unsigned me = bz_node();
    bz_event_t *woken;
    bz_lock(condvar->lock);
    if (condvar->woken[me] == NULL) condvar->woken[me] = bz_event_new();
    woken = condvar->woken[me];
    condvar->waiting[condvar->behind++ % BZ_PARMACS_NODES] = me;
    bz_unlock(condvar->lock);
    bz_unlock(lock);
    bz_event_wait(woken);
    /* Nobody sets it again before this node waits again. */
    bz_event_clear(woken);
    bz_lock(lock);
}

/* Wakes so many of the nodes that wait. */
static inline void bz_parmacs_condvar_wake(bz_parmacs_condvar_t *condvar, unsigned most) {
    bz_lock(condvar->lock);
    while (most-- > 0 && condvar->first != condvar->behind)
        bz_event_set(condvar->woken[condvar->waiting[condvar->first++ % BZ_PARMACS_NODES]]);
    bz_unlock(condvar->lock);
}

#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif

/* The names of SPLASH-3, for programs that include this file and use no macros of parmacs.m4. */
#ifdef BLIZZARD_PARMACS_NAMES
#define SPLASH3_ROI_BEGIN() ((void)0)
#define SPLASH3_ROI_END() ((void)0)
#define CONDVARDEC(condvar) bz_parmacs_condvar_t *condvar;
#define CONDVARINIT(condvar) ((condvar) = bz_parmacs_condvar_new())
#define CONDVARWAIT(condvar, lock) bz_parmacs_condvar_wait((condvar), (lock))
#define CONDVARSIGNAL(condvar) bz_parmacs_condvar_wake((condvar), 1)
#define CONDVARBCAST(condvar) bz_parmacs_condvar_wake((condvar), BZ_PARMACS_NODES)
#define AGETL(locks, index) ((locks)[index])
#define AULOCK(locks, index) bz_unlock((locks)[index])
#define RELEASE_FENCE() __atomic_thread_fence(__ATOMIC_RELEASE)
#define ACQUIRE_FENCE() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define FULL_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

static inline unsigned long bz_parmacs_clock(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return (unsigned long)now.tv_sec * 1000000ul + (unsigned long)now.tv_usec;
}

#ifdef __cplusplus
}
#endif

#endif
