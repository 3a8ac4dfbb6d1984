/* blizzard.h - shared memory for programs that Blizzard runs on many node processes.
 *
 * main() runs on every node (SPMD). Memory from bz_alloc has the same address on all nodes and is sequentially
 * consistent, unless bz_alloc_with or `--attr` chooses BZ_PROTOCOL_UPDATE or BZ_PROTOCOL_REDUCE. Everything else (globals, malloc, the stack) is private to a node. A program that has not been rewritten,
 * or that was not started by `blizzard run`, is the one node of its run.
 *
 * No function here may be called from a signal handler. Misuse (a pointer that was not allocated, unlocking a lock that the
 * caller does not hold, a slot out of range) ends the run with a message.
 *
 * System calls may be given shared memory. With several nodes a call that waits is interrupted when another node needs an answer, and made again. `write`, `writev`, `send`, `sendmsg`
 * to a pipe or a socket return what POSIX says: everything, or what was written when a handler of the program ran, or EINTR if that was nothing and the handler has no SA_RESTART.
 * What differs from a run without Blizzard: the timeouts of sockets (SO_RCVTIMEO, SO_SNDTIMEO) begin again at each interruption, and `sendmmsg`, `recvmmsg` and `splice` may
 * return earlier, with less, than they would.
 *
 * Compile with `blizzard config --cflags`, link with `blizzard config --libs`.
 */
#ifndef BLIZZARD_H
#define BLIZZARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number of this node, 0 .. bz_nodes()-1. */
unsigned bz_node(void);
/* Number of nodes of this run, at least 1. */
unsigned bz_nodes(void);

/* Shared memory: `bytes` bytes, all zero, aligned to 64 bytes; any node may call it, and any node may use the result.
 * Each page has a home: the node that knows who has copies. Homes are spread over the nodes. With `--homes first-touch` pages of allocations up to 64 KiB have theirs on the node that
 * allocates, others at the node that touches them first. NULL when the segment is full, after a line on standard
 * error that names the call, the bytes asked, the bytes free, and the least `blizzard run --segment-gib` that is enough. 0 bytes give a pointer that may be freed. */
void *bz_alloc(size_t bytes);
/* The same with all pages homed on node `home`: that node reaches data without messages as long as no other node has a copy. */
void *bz_alloc_on(unsigned home, size_t bytes);

/* How one allocation is kept. 0 in block_bytes, homes or protocol: as the run's options say (`--block-size`, `--homes`, `--protocol`). It changes when data travels. Only two
 * protocols can change results. With BZ_PROTOCOL_UPDATE a node must flush before it tells others of its stores ("Flushes" below). With BZ_PROTOCOL_REDUCE nodes add to copies of
 * their own ("Reductions in place" below). Source: Reinhardt 1996, section 2.3. */
enum {
    BZ_PROTOCOL_DEFAULT,
    BZ_PROTOCOL_STACHE,
    BZ_PROTOCOL_MCM,
    /* For data that many nodes use by turns, a little each time, such as a counter or the head of a queue: there are no copies. The home lends a block to one node at a time, and gets it back
     * at the borrower's next poll while others want it. A turn of another node costs one miss and three messages; a turn of the home mostly costs none. Sequentially consistent. */
    BZ_PROTOCOL_HOME,
    BZ_PROTOCOL_UPDATE,
    /* For data that one node after the other reads and then stores to, as under a lock: the read miss brings the right to store, so a turn takes one miss instead of two. A block
     * whose readers turn out not to store is kept as BZ_PROTOCOL_STACHE keeps it, until it is read and stored to by turns again. Sequentially consistent. */
    BZ_PROTOCOL_MIGRATORY,
    /* For data that are written once or seldom and read by many. The nodes that had copies when somebody stored are remembered: as soon as one of them reads again, all get new copies,
     * unasked. So a store costs one reader's miss instead of one for each reader. It costs none when a node other than the home has stored and calls bz_check_in. A node that
     * no longer reads still gets a copy for each store that others read, until it gives one up (bz_check_in). Sequentially consistent. */
    BZ_PROTOCOL_BROADCAST,
    /* With an operation: BZ_PROTOCOL_REDUCE_BY. */
    BZ_PROTOCOL_REDUCE
};
/* For data that many nodes add to between two barriers: see "Reductions in place" below. For example BZ_PROTOCOL_REDUCE_BY(BZ_BY_SUM, BZ_OF_F64). Floats have no BZ_BY_OR. */
#define BZ_PROTOCOL_REDUCE_BY(operation, type) (BZ_PROTOCOL_REDUCE | (1u + 6u * (operation) + (type)) << 8)
enum { BZ_BY_SUM, BZ_BY_MIN, BZ_BY_MAX, BZ_BY_OR };
enum { BZ_OF_U32, BZ_OF_I32, BZ_OF_U64, BZ_OF_I64, BZ_OF_F32, BZ_OF_F64 };
enum { BZ_HOMES_DEFAULT, BZ_HOMES_ROUND_ROBIN, BZ_HOMES_FIRST_TOUCH, BZ_HOMES_NODE, BZ_HOMES_SLICES };
typedef struct bz_attr {
    /* Bytes that change hands together: 64, 128, 256, 512, 1024, 2048 or 4096. Large blocks take one miss for data that is used together; small ones
     * keep data apart that different nodes write. The memory is aligned to it and is a multiple of it long. */
    uint32_t block_bytes;
    /* Homes of the pages, one of BZ_HOMES_...: round-robin; each at the node that uses it first; all on `node`; or slices: the size is rounded up to pages and divided into
     * one contiguous slice for each node, and node i is the home of slice i. Slices are for arrays of which node i mostly uses the i-th part. They cost two messages for
     * each other node when memory is allocated. Freed slices are used again only for slices of the same size; when fresh pages run out, slices may have other
     * homes. In programs that create their nodes (bz_create), first touch and slices mean round-robin. */
    uint32_t homes;
    uint32_t node;
    /* The coherence protocol, one of BZ_PROTOCOL_...: BZ_PROTOCOL_UPDATE is explained in "Flushes" below, BZ_PROTOCOL_REDUCE_BY(...) in "Reductions in place", the others above and
     * by `blizzard run --help`. All but these two are sequentially consistent. */
    uint32_t protocol;
} bz_attr_t;
/* Shared memory as bz_alloc, with these attributes (NULL: those of the run). Allocations with one combination of attributes, if it is not the run's own,
 * share a 512th of the segment (128 MiB of 64 GiB). With BZ_HOMES_NODE, and a block size or protocol that is not the run's, they share a 128th or less of that node's part
 * (128 MiB with two nodes). Slices and first touch share one part. Returns NULL, as bz_alloc, when that part is full. An invalid block size, constant or node ends the run with a message. */
void *bz_alloc_with(const bz_attr_t *attributes, size_t bytes);
/* Frees memory of bz_alloc, bz_alloc_on or bz_alloc_with, allocated by any node. No node may use it any more. NULL is ignored. */
void bz_free(void *p);

/* Hints about the use of `bytes` bytes at `p`. They change only when copies travel (but bz_check_out of memory with
 * BZ_PROTOCOL_REDUCE has a meaning: see "Reductions in place"); addresses that are not shared are ignored. A copy that has come can be taken away again before it is used.
 * bz_prefetch asks for copies and does not wait (up to 63 blocks at a time; what is beyond is ignored); `store` nonzero: to
 *   store to, else to load from. With BZ_PROTOCOL_HOME it does nothing.
 * bz_check_out brings all blocks of the range here, however many, and then returns. It is cheaper than missing on one after the other.
 * bz_check_in gives copies back to their homes, so that the next user needs not take them away from here.
 * `--stats` counts calls, and blocks asked for (prefetches). hints_late: blocks that were used before their copy came. hints_lost: blocks that were used after their copy had been
 * taken away. All others came in time, or were not used. blocks_checked_in: copies that bz_check_in gave back.
 * Source: Hill et al., Cooperative Shared Memory, 1993. */
void bz_prefetch(const void *p, size_t bytes, int store);
void bz_check_out(const void *p, size_t bytes, int store);
void bz_check_in(const void *p, size_t bytes);
/* Copies `bytes` bytes that do not overlap from shared memory to private memory (bz_get), or from private memory to shared memory (bz_put): all blocks are checked out first, so that
 * they travel together. Counted as bz_check_out. */
void bz_get(void *to, const void *from, size_t bytes);
void bz_put(void *to, const void *from, size_t bytes);

/* Number of slots of bz_publish and bz_lookup. */
#define BZ_SLOTS 1024
/* Makes `p` known to all nodes under a slot number. A slot may be published again: later lookups see the later value. */
void bz_publish(unsigned slot, void *p);
/* The pointer of a slot; waits until some node has published it. */
void *bz_lookup(unsigned slot);

/* Returns when all nodes have called it. */
void bz_barrier(void);

/* A lock that any node may use; its address may be published or stored in shared memory. Never freed. */
typedef struct bz_lock bz_lock_t;
bz_lock_t *bz_lock_new(void);
/* Waits until the lock is free and takes it; waiting nodes get it in the order of their requests. On several hosts those on the host of the node that
 * releases it come first, 16 times in a row at most while others wait. Not recursive. */
void bz_lock(bz_lock_t *lock);
/* Takes the lock if it is free: 1 taken, 0 not. It may return 0 for a lock that another node has just released. */
int bz_trylock(bz_lock_t *lock);
/* Releases a lock that the calling node holds. */
void bz_unlock(bz_lock_t *lock);

/* A barrier for some of the nodes; its address may be published or stored in shared memory. Never freed. */
typedef struct bz_barrier bz_barrier_t;
bz_barrier_t *bz_barrier_new(void);
/* Returns when `nodes` nodes (1 to bz_nodes()) wait at the barrier, which can then be used again; all of them must give the same
 * number. 1 for exactly one of them, 0 for the others. */
int bz_barrier_wait(bz_barrier_t *barrier, unsigned nodes);

/* A flag that nodes wait for. Not set at first. Never freed. When bz_event_set or bz_event_clear has returned, every node finds it done. */
typedef struct bz_event bz_event_t;
bz_event_t *bz_event_new(void);
void bz_event_set(bz_event_t *event);
void bz_event_clear(bz_event_t *event);
/* Returns at once if the event is set, else when it is set next. */
void bz_event_wait(bz_event_t *event);

/* ---- Fetch-and-op ---- */

/* Operations on 64-bit words. BZ_COMPARE_SWAP stores `v` if the word equals `expected`; all others ignore `expected`. */
typedef enum bz_op {
    BZ_ADD,
    BZ_AND,
    BZ_OR,
    BZ_XOR,
    BZ_SWAP,
    BZ_MIN_U64,
    BZ_MAX_U64,
    BZ_MIN_I64,
    BZ_MAX_I64,
    BZ_COMPARE_SWAP,
    BZ_ADD_F64
} bz_op_t;

/* On the shared word at `p` (8-byte aligned), atomically for all nodes; returns the old value. The word's block moves to the caller: cheap while
 * one node uses it again and again. Ordinary loads, stores and atomic instructions may use the same word. */
uint64_t bz_fetch_op_u64(uint64_t *p, bz_op_t op, uint64_t v, uint64_t expected);
uint64_t bz_fetch_add_u64(uint64_t *p, uint64_t v);
uint64_t bz_fetch_and_u64(uint64_t *p, uint64_t v);
uint64_t bz_fetch_or_u64(uint64_t *p, uint64_t v);
uint64_t bz_fetch_xor_u64(uint64_t *p, uint64_t v);
uint64_t bz_fetch_min_u64(uint64_t *p, uint64_t v);
uint64_t bz_fetch_max_u64(uint64_t *p, uint64_t v);
uint64_t bz_swap_u64(uint64_t *p, uint64_t v);
/* Stores `v` if the word is `expected`; returns what it was. */
uint64_t bz_compare_swap_u64(uint64_t *p, uint64_t expected, uint64_t v);

/* A 64-bit counter that is no memory: the node that makes it performs all operations on it, so each costs one message and its answer, however
 * many nodes use it in turn. For operations with much work between them; many in a row are cheaper on a shared word. Its address may be published or stored in shared memory. Never freed. */
typedef struct bz_counter bz_counter_t;
bz_counter_t *bz_counter_new(uint64_t value);
/* Returns the old value. BZ_ADD of 0 reads it. */
uint64_t bz_counter_op(bz_counter_t *counter, bz_op_t op, uint64_t v, uint64_t expected);

/* ---- All nodes together ----
 *
 * Every node must call these, in the same order, with the same operation and number of words or bytes. All nodes get the same bits: values are
 * combined in a fixed order, which depends only on how many nodes each host has. Up to 8 nodes of one host: by node number. More: along a tree. Several
 * hosts: first within each host. */

/* Sums of integers wrap; minimum and maximum are NaN if any value is. */
typedef enum bz_reduction {
    BZ_REDUCE_SUM_U64,
    BZ_REDUCE_SUM_I64,
    BZ_REDUCE_SUM_F64,
    BZ_REDUCE_MIN_U64,
    BZ_REDUCE_MIN_I64,
    BZ_REDUCE_MIN_F64,
    BZ_REDUCE_MAX_U64,
    BZ_REDUCE_MAX_I64,
    BZ_REDUCE_MAX_F64
} bz_reduction_t;

/* Reduces `count` 64-bit words at `words` (8-byte aligned, private or each node's own part of shared memory) element by element, in place. */
void bz_reduce(bz_reduction_t kind, void *words, size_t count);
uint64_t bz_reduce_sum_u64(uint64_t v);
int64_t bz_reduce_sum_i64(int64_t v);
double bz_reduce_sum_f64(double v);
uint64_t bz_reduce_min_u64(uint64_t v);
int64_t bz_reduce_min_i64(int64_t v);
double bz_reduce_min_f64(double v);
uint64_t bz_reduce_max_u64(uint64_t v);
int64_t bz_reduce_max_i64(int64_t v);
double bz_reduce_max_f64(double v);

/* Copies `bytes` bytes at `p` from node `root` to the other nodes' `p` (private, or each node's own part of shared memory). */
void bz_broadcast(unsigned root, void *p, size_t bytes);

/* ---- Remote writes ---- */

/* Copies `bytes` bytes at `from` to the *private* memory at `to` of another node, a global variable for example, whose address is the same
 * on all nodes. It does not wait. The write happens when that node next enters the runtime; the writes of one node keep their order. If `to` is not writable there, the run ends. */
void bz_remote_write(unsigned node, void *to, const void *from, size_t bytes);
/* Returns when all remote writes of the caller have happened. */
void bz_remote_fence(void);

/* ---- Flushes ----
 *
 * Memory with BZ_PROTOCOL_UPDATE is for one usual writer, which the program makes the home of the pages (BZ_HOMES_NODE, BZ_HOMES_FIRST_TOUCH or BZ_HOMES_SLICES).
 * The home stores without a message, and readers keep their copies: a flush of the home sends what has been stored since the last flush to the nodes that have loaded from it. These calls begin with a flush: bz_barrier,
 * bz_barrier_wait, the reductions, bz_broadcast, bz_unlock, bz_event_set, bz_event_clear, bz_publish, bz_flush, bz_remote_fence, the end of the program.
 * - A load on another node gives what the home had at the end of its last flush that has returned, or something newer. So whoever is told by one of these
 *   calls finds what was stored before it. Counters, bz_fetch_op, bz_remote_write, bz_lock and tempest.h do not flush, nor does a store to other shared memory: a node
 *   that tells another one in one of these ways must call bz_flush first.
 * - Loads of one word on one node never go back to an older value. Until a flush returns, different words may show different flushes, even in one block.
 * - A flush compares every block that has readers, and waits for the readers it sends to. Each bz_unlock pays that.
 * - No store is lost. Another node that stores (bz_fetch_op and atomics too) first gets the block from everybody, as with stache; such stores
 *   are visible without a flush. Each such change of the writer costs the misses that it costs with stache.
 * `blizzard run --debug-protocols` ends the run at the first access that relies on more than this, or where two nodes store to the same bytes between flushes. */
/* Flushes, and returns when all readers have what the caller has stored. */
void bz_flush(void);

/* ---- Reductions in place ----
 *
 * Many nodes add to memory with BZ_PROTOCOL_REDUCE_BY(operation, type) between two barriers of all nodes, and read the result after the second one.
 * - bz_check_out(p, bytes, 1) announces that the caller will add to the blocks of the range until the next barrier. On other nodes than the home the elements then begin as what changes
 *   nothing (-0.0 for sums of floats, infinity for a minimum, ...). The caller loads, combines and stores as with any memory, without a message, and sees only what it has added itself.
 *   A store that was not announced ends the run, except at the home.
 * - The home of a page needs no bz_check_out. Its loads and stores act on the value itself.
 * - At bz_barrier, the reductions and bz_broadcast the home combines its value with what the others have added, from the left, in order of the nodes' numbers.
 * - On another node, a load of memory that it has not announced gives the value as of the last of these calls, perhaps with later stores of the home.
 * So integers are exact, and floats are the same bits in each run with as many nodes and the same homes. (With `--stache-pages` what one node has added may travel in pieces, between
 * which floats are rounded in another order.) What is added after the last of these calls is lost; bz_flush, locks and bz_barrier_wait combine nothing.
 * New memory holds zero for sums, and what changes nothing for other operations. Allocations are whole pages. BZ_HOMES_FIRST_TOUCH means round-robin here. Each allocation costs a
 * message to every other node. In programs that create their nodes it can be allocated when all have been created.
 */

/* ---- Creating nodes ----
 *
 * A program that calls bz_create or bz_fork_nodes is started on node 0 only: main() runs there, alone, until it creates the others. (The linker
 * leaves a mark in the program, by which `blizzard run` knows it; if only a shared library calls them, give `--fork`.)
 * Until then node 0 allocates and fills shared memory without messages.
 *
 * A created node begins as `fork` would have it: globals, heap, stack, open files (with their positions), signal handlers and the working
 * directory are as node 0 has them at that moment; from then on each has its own. Streams are flushed first, so that nothing is written twice.
 * Its shared memory is the run's. It calls fn and then exits with status 0.
 *
 * Pages get their homes once, among the nodes that exist then: when node 0 first waits for another node or for the kernel, or has computed for some milliseconds after a creation.
 * A node that is created later is home of no page. Before that moment bz_alloc_on gives memory of node 0.
 * bz_barrier and the reductions count the nodes that exist. Create all that shall take part before node 0 calls one of them.
 * More nodes than the run has end it with an error. The output of all appears as node 0's, as that of any forked processes would.
 */
/* Creates the next node, which calls fn. Node 0 only. */
void bz_create(void (*fn)(void));
/* Creates all nodes that are left; each calls fn. Node 0 only. With one node nothing happens. */
void bz_fork_nodes(void (*fn)(void));
/* Waits until `count` more of the created nodes have ended. Node 0 only. */
void bz_wait_for_end(unsigned count);
/* The same, for `most` nodes or, if fewer are left to wait for, for these. */
void bz_wait_for_created(unsigned most);

#ifdef __cplusplus
}
#endif

#endif
