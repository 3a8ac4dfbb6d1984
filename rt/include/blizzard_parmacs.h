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

static inline unsigned long bz_parmacs_clock(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return (unsigned long)now.tv_sec * 1000000ul + (unsigned long)now.tv_usec;
}

#ifdef __cplusplus
}
#endif

#endif
