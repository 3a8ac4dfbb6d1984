/* blizzard_parmacs.h - what the macros of parmacs.m4 expand to, beyond blizzard.h, in the C of 1989, as the programs are; and the same names for programs that use
 * no macros. */
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

static inline unsigned long bz_parmacs_clock(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return (unsigned long)now.tv_sec * 1000000ul + (unsigned long)now.tv_usec;
}

/* The same names for programs that include this file and use no macros of parmacs.m4. Statements are blocks, as there: a semicolon behind them may be
 * left out. These need the C of 1999. */
#ifdef BLIZZARD_PARMACS_NAMES
#define BZ_PARMACS_FIRST(first, ...) first
#define BZ_PARMACS_THIRD(first, second, third, ...) third

#define MAIN_ENV
#define EXTERN_ENV
#define ENV
#define MAIN_INITENV(...) {;}
#define MAIN_END {exit(0);}
#define BZ_PARMACS_CREATE(fn, nodes, ...) \
    {if ((nodes) == 0) bz_create((void (*)(void))(fn)); else {bz_parmacs_create((void (*)(void))(fn), (nodes)); (fn)();}}
#define CREATE(...) BZ_PARMACS_CREATE(__VA_ARGS__, 0, 0)
#define WAIT_FOR_END(nodes) {bz_parmacs_wait_for_end(nodes);}

#define G_MALLOC(...) bz_alloc(BZ_PARMACS_FIRST(__VA_ARGS__, 0))
#define G_MALLOC_F(...) bz_alloc(BZ_PARMACS_FIRST(__VA_ARGS__, 0))
#define NU_MALLOC(...) bz_alloc(BZ_PARMACS_FIRST(__VA_ARGS__, 0))
#define NU_MALLOC_F(...) bz_alloc(BZ_PARMACS_FIRST(__VA_ARGS__, 0))
#define G_FREE(...) {bz_free((void *)(BZ_PARMACS_FIRST(__VA_ARGS__, 0)));}
#define NU_FREE(...) {bz_free((void *)(BZ_PARMACS_FIRST(__VA_ARGS__, 0)));}

#define LOCKDEC(lock) bz_lock_t *lock;
#define LOCKINIT(lock) {(lock) = bz_lock_new();}
#define LOCK(lock) {bz_lock(lock);}
#define UNLOCK(lock) {bz_unlock(lock);}
#define NLOCKDEC(lock) bz_lock_t *lock;
#define NLOCKINIT(lock) {(lock) = bz_lock_new();}
#define NLOCK(lock) {bz_lock(lock);}
#define NUNLOCK(lock) {bz_unlock(lock);}
#define ALOCKDEC(locks, count) bz_lock_t *locks[count];
#define ALOCKINIT(locks, count) {bz_parmacs_locks((locks), (count));}
#define ALOCK(locks, index) {bz_lock((locks)[index]);}
#define AULOCK(locks, index) {bz_unlock((locks)[index]);}
#define AGETL(locks, index) ((locks)[index])

#define CONDVARDEC(condvar) bz_parmacs_condvar_t *condvar;
#define CONDVARINIT(condvar) {(condvar) = bz_parmacs_condvar_new();}
#define CONDVARWAIT(condvar, lock) {bz_parmacs_condvar_wait((condvar), (lock));}
#define CONDVARSIGNAL(condvar) {bz_parmacs_condvar_wake((condvar), 1);}
#define CONDVARBCAST(condvar) {bz_parmacs_condvar_wake((condvar), BZ_PARMACS_NODES);}

#define RELEASE_FENCE() {__atomic_thread_fence(__ATOMIC_RELEASE);}
#define ACQUIRE_FENCE() {__atomic_thread_fence(__ATOMIC_ACQUIRE);}
#define FULL_FENCE() {__atomic_thread_fence(__ATOMIC_SEQ_CST);}

#define BARDEC(barrier) bz_barrier_t *barrier;
#define BARINIT(...) {(BZ_PARMACS_FIRST(__VA_ARGS__, 0)) = bz_barrier_new();}
#define BARRIER(barrier, nodes) {bz_barrier_wait((barrier), (unsigned)(nodes));}

#define BZ_PARMACS_PAUSE(pause) bz_event_t *pause;
#define BZ_PARMACS_PAUSES(pauses, count) bz_event_t *pauses[count];
#define PAUSEDEC(...) BZ_PARMACS_THIRD(__VA_ARGS__, BZ_PARMACS_PAUSES, BZ_PARMACS_PAUSE, 0)(__VA_ARGS__)
#define BZ_PARMACS_PAUSE_INIT(pause) {(pause) = bz_event_new();}
#define BZ_PARMACS_PAUSES_INIT(pauses, count) {bz_parmacs_pauses((pauses), (count));}
#define PAUSEINIT(...) BZ_PARMACS_THIRD(__VA_ARGS__, BZ_PARMACS_PAUSES_INIT, BZ_PARMACS_PAUSE_INIT, 0)(__VA_ARGS__)
#define SETPAUSE(pause) {bz_event_set(pause);}
#define CLEARPAUSE(pause) {bz_event_clear(pause);}
#define WAITPAUSE(pause) {bz_event_wait(pause);}
#define PAUSE(pause) {bz_event_wait(pause);}
#define EVENT(pause) {bz_event_set(pause);}

#define GSDEC(loop) bz_parmacs_loop_t loop;
#define GSINIT(loop) {bz_parmacs_loop_init(&(loop));}
#define GETSUB(loop, subscript, last, nodes) {(subscript) = bz_parmacs_subscript(&(loop), (long)(last), (unsigned)(nodes));}
#define NU_GSDEC(loop) bz_parmacs_loop_t loop;
#define NU_GSINIT(loop) {bz_parmacs_loop_init(&(loop));}
#define NU_GETSUB(loop, subscript, last, nodes) {(subscript) = bz_parmacs_subscript(&(loop), (long)(last), (unsigned)(nodes));}

#define CLOCK(time) {(time) = bz_parmacs_clock();}
#define SPLASH3_ROI_BEGIN() {;}
#define SPLASH3_ROI_END() {;}
#endif

#ifdef __cplusplus
}
#endif

#endif
