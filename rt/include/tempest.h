/* tempest.h - the Tempest interface, revision 1.2.1, for programs that Blizzard runs on many node processes.
 *
 * Mechanisms from which a program, a library or a compiler builds its own shared memory: pages in a virtual segment of its own, access tags on
 * 64-byte blocks, handlers for faults, messages and timers, bulk channels. "Section" below means a section of the Tempest Interface
 * Specification 1.2.1; "A.2.x" one of Reinhardt's thesis of 1996, where the specification's text has gaps.
 *
 * Execution model (section 2). main() runs on every node. Each node has one computation thread, which is also its protocol thread: a
 * handler runs on it, to its end, when the program faults on a block, reaches a poll (the rewriter puts them into loops), waits, or calls a
 * function of the runtime. The handler of a message that comes early runs before main, so let the nodes meet in bz_barrier before they send what
 * main must have prepared for. Handlers run one at a time: first that of a fault, then timers, then messages. A handler must not
 * wait: no access that faults, no function of blizzard.h but bz_node and bz_nodes, no TPPI_sleep. It may send without limit. backtrace() in a
 * handler shows the calls that led to where the program is. A C++ exception must be caught in the handler: nothing outside of it can.
 *
 * Errors. A call that the specification gives a result for failure returns it. Every other misuse (a length that is no block's, a page that is
 * not mapped, a node that does not exist, a function that is not code of the program, reading more of a message than there is) ends the
 * run with a message that names the function. A program that has not been rewritten cannot use this interface: its first call ends it.
 * Only the main thread of a node may call these functions, and no signal handler may.
 *
 * Settings of `blizzard run`: --tempest-debug, --tempest-buffer, --tempest-pages, --tempest-no-direct-bulk.
 */
#ifndef TEMPEST_H
#define TEMPEST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 3.1 Virtual memory management ---- */

/* The user-managed virtual segment, at the same address on every node: 16 GiB (section 3.1 wants at least 1). The specification has no name
 * for its bounds. It is separate from the memory of bz_alloc, which has a protocol of its own. */
extern char *const TPPI_segment_base; /* A variable: an access to a constant 64-bit address cannot be checked, and is refused. */
#define TPPI_SEGMENT_BASE TPPI_segment_base
#define TPPI_SEGMENT_BYTES ((size_t)16 << 30)

/* 3.1.1 Page size in bytes, and its logarithm. */
#define TPPI_PAGE_SHIFT 12
#define TPPI_PAGE_SIZE (1 << TPPI_PAGE_SHIFT)

/* 3.1.2 Page modes: 0 .. TPPI_MAX_PAGE_MODE. */
typedef unsigned TPPI_PageMode;
#define TPPI_NUM_PAGE_MODES 64
#define TPPI_MAX_PAGE_MODE (TPPI_NUM_PAGE_MODES - 1)

/* 3.3.1 Node identifiers: 0 .. TPPI_num_nodes - 1. Both variables have their values before main. */
typedef unsigned TPPI_NodeId;
extern unsigned TPPI_num_nodes;
extern TPPI_NodeId TPPI_self_address;

/* 3.2.1 Access tags. */
typedef enum { TPPI_Blk_Busy, TPPI_Blk_Invalid, TPPI_Blk_ReadOnly, TPPI_Blk_Writable } TPPI_BlkAccTag;
#define TPPI_NUM_BLK_ACC_TAGS 4
#define TPPI_MAX_BLK_ACC_TAG (TPPI_NUM_BLK_ACC_TAGS - 1)

/* 3.1.3 Maps a page of zeros at `pg`, all its blocks tagged `acc`. `mode` chooses its handlers; they get `home` and `usr_ptr`, which mean
 * nothing to the runtime. 1: done. 0: `pg` is not the address of a page of the segment, is mapped
 * already, or there is no memory (--tempest-pages bounds a node's pages), which a line on standard error says the first time. */
int TPPI_alloc_and_map(void *pg, TPPI_PageMode mode, TPPI_BlkAccTag acc, TPPI_NodeId home, void *usr_ptr);
/* Unmaps the page at `pg`; its contents are lost. 1: done. 0: no page is mapped there. */
int TPPI_unmap_and_free(void *pg);
/* Moves the page at `old_pg` to `new_pg`: data, tags, mode, home, user pointer. 1: done. 0: nothing is mapped at `old_pg`, or `new_pg` is not the
 * address of a page that can be mapped. */
int TPPI_remap(void *old_pg, void *new_pg);

/* 3.1.4 Called when the program accesses `va` on a page that is not mapped; the access stays suspended until TPPI_resume_va. `pc` is the
 * lower half of the address of the access: an int has no room for more. TPPI_fault_pc() has all of it. */
typedef void (*TPPI_PageFaultHandlerPtr)(void *va, int pc, int is_write);
void TPPI_register_page_fault_handler(TPPI_PageFaultHandlerPtr fn);
/* In a fault handler: where the access stands in the rewritten code. NULL elsewhere. Not in the specification. */
void *TPPI_fault_pc(void);

/* 3.1.5 What TPPI_alloc_and_map was told of the page that holds `va`. */
typedef struct {
    TPPI_PageMode mode;
    TPPI_NodeId home;
    void *usr_ptr;
} TPPI_PageInfo;
/* 1: mapped, *info_ptr filled in unless it is NULL. 0: not mapped. -1: `va` is outside the segment, or `info_ptr` is not aligned. */
int TPPI_get_page_info(void *va, TPPI_PageInfo *info_ptr);
/* Undefined where no page is mapped: here 0. */
void *TPPI_get_page_user_ptr(void *va);
TPPI_PageMode TPPI_get_page_mode(void *va);
TPPI_NodeId TPPI_get_page_home(void *va);

/* ---- 3.2 Block access control ---- */

/* 3.2.2 The minimum block size in bytes, and its logarithm. 3.2.3: a block is named by any address in it and a length, a power of two
 * not below this one. Operations on a longer block are operations on its minimal blocks, in ascending order. */
#define TPPI_TAG_BLK_SHIFT 6
#define TPPI_TAG_BLK_SIZE (1 << TPPI_TAG_BLK_SHIFT)

/* 3.2.4 The tag of the block that holds `va`; Invalid where no page of the segment is mapped, Writable in private memory. */
TPPI_BlkAccTag TPPI_get_blk_acc(void *va);

/* 3.2.5 Tag changes; table 2 says which may be applied to a block with which tag. One that table 2 does not allow still sets the tag it
 * names; with --tempest-debug it is counted (bad_tag_changes) and the first one is reported. */
typedef enum {
    TPPI_Blk_Validate_RW,
    TPPI_Blk_Upgrade_RW,
    TPPI_Blk_Validate_RO,
    TPPI_Blk_Downgrade_RO,
    TPPI_Blk_Invalidate,
    TPPI_Blk_Mark_Busy,
    TPPI_Blk_No_Tag_Change,
    TPPI_Blk_Invalid_To_Busy,
    TPPI_Blk_Busy_To_Invalid
} TPPI_BlkTagChange;
void TPPI_change_blk_acc(void *blk_va, int blk_len, TPPI_BlkTagChange chg);
/* Copies `blk_len` bytes from `from` (private memory or a mapped page) into the block and changes its tag. */
void TPPI_change_blk_acc_and_copy(void *blk_va, int blk_len, TPPI_BlkTagChange chg, void *from);

/* 3.2.7 Handlers of block access faults, by page mode, tag and access; NULL removes one. `va` is the first byte of the access in the
 * faulting block. Registering one for an access that never faults (a load from a ReadOnly or Writable block, a store to a Writable one) is an
 * error. A fault without a handler is an error, too. */
#define TPPI_ReadAccess 0
#define TPPI_WriteAccess 1
typedef void (*TPPI_BlkAccFaultHandlerPtr)(void *va, void *usr_ptr, TPPI_NodeId home);
void TPPI_register_blk_acc_fault_handler(TPPI_PageMode mode, TPPI_BlkAccTag tag, int acc, TPPI_BlkAccFaultHandlerPtr fn);

/* ---- 3.3 Fine-grain messaging ---- */

/* 3.3.4 Most bytes of a message's body: a page and 256 bytes. Up to 24 bytes travel in one cache line, up to 88 in two. */
#define TPPI_MAX_AM_BYTES (TPPI_PAGE_SIZE + 256)

/* 3.3.2 A handler is called on the destination with the source and the bytes of the body. Any function of the program will do, if the
 * destination has loaded the same file. Messages from one node to another are handled in the order of sending; a node may send to itself. */
typedef void (*TPPI_MessageHandlerPtr)(TPPI_NodeId src, int size);

/* One item of a body, made by the four functions below. */
typedef struct {
    unsigned kind, change;
    int len;
    unsigned pad;
    void *addr;
} TPPI_Item;

/* W: a word. */
static inline TPPI_Item TPPI_item_W(int word) {
    TPPI_Item item = {0, 0, word, 0, 0};
    return item;
}
/* Ba: the contents of a block, whose tag then changes. */
static inline TPPI_Item TPPI_item_Ba(void *blk_va, int blk_len, TPPI_BlkTagChange chg) {
    TPPI_Item item = {1, (unsigned)chg, blk_len, 0, blk_va};
    return item;
}
/* R: `len` bytes from `va`; both multiples of the word size, sizeof(int). Tags do not matter. Memory of bz_alloc is made readable first,
 * which a handler must not wait for. */
static inline TPPI_Item TPPI_item_R(void *va, int len) {
    TPPI_Item item = {2, 0, len, 0, va};
    return item;
}
/* F: the next `len` bytes of the message whose handler runs; a multiple of the word size. */
static inline TPPI_Item TPPI_item_F(int len) {
    TPPI_Item item = {3, 0, len, 0, 0};
    return item;
}

/* Sends a body of `count` items. */
void TPPI_send_items(TPPI_NodeId dest, TPPI_MessageHandlerPtr pc, const TPPI_Item *items, unsigned count);
/* The same with the items as arguments, for lists that have no function of their own:
 *   TPPI_send_list(dest, handler, TPPI_item_W(1), TPPI_item_R(buffer, 256), TPPI_item_W(2)); */
#ifndef __cplusplus
#define TPPI_send_list(dest, pc, ...)                           \
    TPPI_send_items((dest), (pc), (const TPPI_Item[]){__VA_ARGS__}, \
                    (unsigned)(sizeof((const TPPI_Item[]){__VA_ARGS__}) / sizeof(TPPI_Item)))
#endif
/* A message without a body. */
void TPPI_send(TPPI_NodeId dest, TPPI_MessageHandlerPtr pc);
/* TPPI_send_W, TPPI_send_WBa, ...: one function for each list of up to four items, and for up to sixteen words, alone or with a block or a
 * region behind them. */
#include "tempest_send.h"

/* 3.3.3 In a message handler: the next word; the next `blk_len` bytes into a block, whose tag then changes; the next `len` bytes into a region.
 * A handler must take all of its message. */
int TPPI_recv_W(void);
void TPPI_recv_Ba(void *blk_va, int blk_len, TPPI_BlkTagChange chg);
void TPPI_recv_R(void *va, int len);

/* ---- 3.4 Bulk data transfer ---- */

/* 3.4.5 Most bytes of one transfer. */
#define TPPI_MAX_CHANNEL_BYTES (1 << 30)
/* 3.4.1 Callbacks get the node at the other end and the channel; NULL: none. Buffers start and end at a multiple of four bytes and are not
 * in memory of bz_alloc; tags do not matter and do not change. */
typedef void (*TPPI_ChannelHandlerPtr)(TPPI_NodeId node, int channel);
/* Makes the source's end of a channel and returns its number, which the program tells the destination. `fn`: the buffer of a send may be
 * used again. */
int TPPI_set_channel_src(TPPI_NodeId dest, TPPI_ChannelHandlerPtr fn);
/* Makes the destination's end. `fn`: the data is there. Returns 1. */
int TPPI_set_channel_dst(TPPI_NodeId src, int channel, void *buffer, int bytes, TPPI_ChannelHandlerPtr fn);
/* The same; the source's TPPI_is_channel_estd becomes true when it hears of it (A.2.4.1). */
int TPPI_set_channel_dst_notify(TPPI_NodeId src, int channel, void *buffer, int bytes, TPPI_ChannelHandlerPtr fn);
int TPPI_is_channel_estd(TPPI_NodeId dest, int channel);
/* 3.4.2 Sends `bytes` bytes, exactly as many as the destination's buffer has. The buffer must stay as it is until the callback. */
void TPPI_channel_send(TPPI_NodeId dest, int channel, void *buffer, int bytes);
/* At the destination: whether all data is there; true until the reset. */
int TPPI_is_channel_ready(TPPI_NodeId src, int channel);
/* At the destination, before the next send: the source must know of it. */
void TPPI_reset_channel(TPPI_NodeId src, int channel);
/* The same; the source's TPPI_is_channel_reset becomes true when it hears of it, until its next send (A.2.4.2). */
void TPPI_reset_channel_notify(TPPI_NodeId src, int channel);
int TPPI_is_channel_reset(TPPI_NodeId dest, int channel);
/* 3.4.3 */
void TPPI_destroy_channel_src(TPPI_NodeId dest, int channel);
void TPPI_destroy_channel_dst(TPPI_NodeId src, int channel);
/* 3.4.4 A pointer for the program at each end, NULL at first. */
void *TPPI_get_src_channel_user_ptr(TPPI_NodeId dest, int channel);
void *TPPI_get_dst_channel_user_ptr(TPPI_NodeId src, int channel);
void TPPI_set_src_channel_user_ptr(TPPI_NodeId dest, int channel, void *user_ptr);
void TPPI_set_dst_channel_user_ptr(TPPI_NodeId src, int channel, void *user_ptr);

/* ---- 3.5 Timers ---- */

/* Calls `fn(user_ptr)` once, `ticks` microseconds from now or later; a negative number of ticks is 0. */
typedef void (*TPPI_TimerHandlerPtr)(void *user_ptr);
void TPPI_schedule_timer(int ticks, TPPI_TimerHandlerPtr fn, void *user_ptr);

/* ---- 3.6 Thread management ---- */

/* Resumes the node's thread if its suspended access is in the block; nothing otherwise. The tag is looked at again: an access that it still
 * does not allow faults again. */
void TPPI_resume_va(void *blk_va, int blk_len);
/* A.2.6: increments *sem_ptr, an int in private memory; if it is then greater than zero, waits until it is not. Handlers run meanwhile. */
void TPPI_sleep(volatile int *sem_ptr);
/* Decrements *sem_ptr; at zero, whoever sleeps on it runs on. */
void TPPI_wakeup(volatile int *sem_ptr);
/* Increments *sem_ptr. */
void TPPI_atomic_incr(volatile int *sem_ptr);

#ifdef __cplusplus
}
#endif

#endif
