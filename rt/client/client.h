/* What the files of the client library share; not installed. */
#ifndef BZ_CLIENT_H
#define BZ_CLIENT_H

#include "blizzard.h"

struct tempest_api;

/* Mirrors BzApi of rt/contract/src/client.rs; append only. */
struct bz_api {
    uint32_t version, bytes;
    unsigned (*node)(void);
    unsigned (*nodes)(void);
    void *(*alloc)(size_t);
    void *(*alloc_on)(unsigned, size_t);
    void (*free)(void *);
    void (*publish)(unsigned, void *);
    void *(*lookup)(unsigned);
    void (*barrier)(void);
    bz_lock_t *(*lock_new)(void);
    void (*lock)(bz_lock_t *);
    int (*trylock)(bz_lock_t *);
    void (*unlock)(bz_lock_t *);
    uint64_t (*fetch_add_u64)(uint64_t *, uint64_t);
    uint64_t (*reduce_sum_u64)(uint64_t);
    double (*reduce_sum_f64)(double);
    unsigned (*create_begin)(void);
    void (*create_end)(int);
    void (*wait_for_end)(unsigned);
    void (*prefetch)(const void *, size_t, int);
    void (*check_out)(const void *, size_t, int);
    void (*check_in)(const void *, size_t);
    bz_barrier_t *(*barrier_new)(void);
    int (*barrier_wait)(bz_barrier_t *, unsigned);
    bz_event_t *(*event_new)(void);
    void (*event_set)(bz_event_t *, int);
    void (*event_wait)(bz_event_t *);
    bz_counter_t *(*counter_new)(uint64_t);
    uint64_t (*counter_op)(unsigned, bz_counter_t *, uint64_t, uint64_t);
    uint64_t (*fetch_op)(unsigned, uint64_t *, uint64_t, uint64_t);
    void (*reduce)(unsigned, uint64_t *, unsigned);
    void (*broadcast)(unsigned, void *, size_t);
    void (*remote_write)(unsigned, void *, const void *, size_t);
    void (*remote_fence)(void);
    /* Of tempest.c; NULL without a runtime. */
    const struct tempest_api *tempest;
    void *(*alloc_with)(size_t, uint32_t, uint32_t, uint32_t, uint32_t);
};

/* The runtime's functions, or those of a run of one node without a runtime. */
__attribute__((visibility("hidden"))) const struct bz_api *bz_client_api(void);

#endif
