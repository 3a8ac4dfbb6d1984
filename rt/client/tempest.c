/* The client library of tempest.h: each function under its name of the specification, through the runtime's table.
 *
 * Linked only into programs that use the interface; its constructor makes the user-managed segment before main.
 */
#include "tempest.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>

/* FORK_NOTE_NAME, TEMPEST_NOTE_TYPE of rt/src/abi.rs: the runtime must know before the program's first instruction. */
__asm__(".pushsection .note.blizzard.tempest,\"a\",@note\n"
        ".balign 4\n"
        ".long 9, 0, 2\n"
        ".asciz \"Blizzard\"\n"
        ".balign 4\n"
        ".popsection\n");

/* Mirrors TempestApi of rt/src/abi/tempest.rs; append only. */
struct tempest_api {
    uint64_t bytes;
    void (*start)(void);
    int (*alloc_and_map)(void *, unsigned, unsigned, unsigned, void *);
    int (*unmap_and_free)(void *);
    int (*remap)(void *, void *);
    void (*register_page_fault_handler)(TPPI_PageFaultHandlerPtr);
    int (*get_page_info)(void *, TPPI_PageInfo *);
    void *(*fault_pc)(void);
    unsigned (*get_blk_acc)(void *);
    void (*change_blk_acc)(void *, int, unsigned);
    void (*change_blk_acc_and_copy)(void *, int, unsigned, void *);
    void (*register_blk_acc_fault_handler)(unsigned, unsigned, int, TPPI_BlkAccFaultHandlerPtr);
    void (*send)(unsigned, TPPI_MessageHandlerPtr, const TPPI_Item *, unsigned);
    int (*recv_w)(void);
    void (*recv_ba)(void *, int, unsigned);
    void (*recv_r)(void *, int);
    int (*set_channel_src)(unsigned, TPPI_ChannelHandlerPtr);
    int (*set_channel_dst)(unsigned, int, void *, int, TPPI_ChannelHandlerPtr, int);
    int (*is_channel_estd)(unsigned, int);
    void (*channel_send)(unsigned, int, void *, int);
    int (*is_channel_ready)(unsigned, int);
    void (*reset_channel)(unsigned, int, int);
    int (*is_channel_reset)(unsigned, int);
    void (*destroy_channel_src)(unsigned, int);
    void (*destroy_channel_dst)(unsigned, int);
    void *(*get_channel_user_ptr)(unsigned, int, int);
    void (*set_channel_user_ptr)(unsigned, int, int, void *);
    void (*schedule_timer)(int, TPPI_TimerHandlerPtr, void *);
    void (*resume_va)(void *, int);
    void (*sleep)(volatile int *);
    void (*wakeup)(volatile int *);
    void (*atomic_incr)(volatile int *);
};

unsigned TPPI_num_nodes = 1;
TPPI_NodeId TPPI_self_address;
char *const TPPI_segment_base = (char *)0x20c000000000;
static const struct tempest_api *table;

/* In front of the program's own constructors. */
__attribute__((constructor(101))) static void start(void) {
    TPPI_num_nodes = bz_nodes();
    TPPI_self_address = bz_node();
    const struct tempest_api *found = bz_client_api()->tempest;
    if (!found) return;
    if (found->bytes < sizeof *found) {
        fprintf(stderr, "blizzard: error: the program was built for another version of tempest.h\n");
        abort();
    }
    /* From here on handlers of messages may run, and call these functions. */
    table = found;
    found->start();
}

static const struct tempest_api *api(void) {
    if (!table) {
        fprintf(stderr, "blizzard: error: tempest.h needs access checks, and this program has not been rewritten: start it with "
                        "`blizzard run`\n");
        abort();
    }
    return table;
}

int TPPI_alloc_and_map(void *pg, TPPI_PageMode mode, TPPI_BlkAccTag acc, TPPI_NodeId home, void *usr_ptr) {
    return api()->alloc_and_map(pg, mode, acc, home, usr_ptr);
}
int TPPI_unmap_and_free(void *pg) { return api()->unmap_and_free(pg); }
int TPPI_remap(void *old_pg, void *new_pg) { return api()->remap(old_pg, new_pg); }
void TPPI_register_page_fault_handler(TPPI_PageFaultHandlerPtr fn) { api()->register_page_fault_handler(fn); }
void *TPPI_fault_pc(void) { return api()->fault_pc(); }
int TPPI_get_page_info(void *va, TPPI_PageInfo *info_ptr) { return api()->get_page_info(va, info_ptr); }

static TPPI_PageInfo info_of(void *va) {
    TPPI_PageInfo info = {0, 0, NULL};
    api()->get_page_info(va, &info);
    return info;
}
void *TPPI_get_page_user_ptr(void *va) { return info_of(va).usr_ptr; }
TPPI_PageMode TPPI_get_page_mode(void *va) { return info_of(va).mode; }
TPPI_NodeId TPPI_get_page_home(void *va) { return info_of(va).home; }

TPPI_BlkAccTag TPPI_get_blk_acc(void *va) { return (TPPI_BlkAccTag)api()->get_blk_acc(va); }
void TPPI_change_blk_acc(void *blk_va, int blk_len, TPPI_BlkTagChange chg) { api()->change_blk_acc(blk_va, blk_len, chg); }
void TPPI_change_blk_acc_and_copy(void *blk_va, int blk_len, TPPI_BlkTagChange chg, void *from) {
    api()->change_blk_acc_and_copy(blk_va, blk_len, chg, from);
}
void TPPI_register_blk_acc_fault_handler(TPPI_PageMode mode, TPPI_BlkAccTag tag, int acc, TPPI_BlkAccFaultHandlerPtr fn) {
    api()->register_blk_acc_fault_handler(mode, tag, acc, fn);
}

void TPPI_send_items(TPPI_NodeId dest, TPPI_MessageHandlerPtr pc, const TPPI_Item *items, unsigned count) {
    api()->send(dest, pc, items, count);
}
void TPPI_send(TPPI_NodeId dest, TPPI_MessageHandlerPtr pc) { api()->send(dest, pc, NULL, 0); }
int TPPI_recv_W(void) { return api()->recv_w(); }
void TPPI_recv_Ba(void *blk_va, int blk_len, TPPI_BlkTagChange chg) { api()->recv_ba(blk_va, blk_len, chg); }
void TPPI_recv_R(void *va, int len) { api()->recv_r(va, len); }

int TPPI_set_channel_src(TPPI_NodeId dest, TPPI_ChannelHandlerPtr fn) { return api()->set_channel_src(dest, fn); }
int TPPI_set_channel_dst(TPPI_NodeId src, int channel, void *buffer, int bytes, TPPI_ChannelHandlerPtr fn) {
    return api()->set_channel_dst(src, channel, buffer, bytes, fn, 0);
}
int TPPI_set_channel_dst_notify(TPPI_NodeId src, int channel, void *buffer, int bytes, TPPI_ChannelHandlerPtr fn) {
    return api()->set_channel_dst(src, channel, buffer, bytes, fn, 1);
}
int TPPI_is_channel_estd(TPPI_NodeId dest, int channel) { return api()->is_channel_estd(dest, channel); }
void TPPI_channel_send(TPPI_NodeId dest, int channel, void *buffer, int bytes) {
    api()->channel_send(dest, channel, buffer, bytes);
}
int TPPI_is_channel_ready(TPPI_NodeId src, int channel) { return api()->is_channel_ready(src, channel); }
void TPPI_reset_channel(TPPI_NodeId src, int channel) { api()->reset_channel(src, channel, 0); }
void TPPI_reset_channel_notify(TPPI_NodeId src, int channel) { api()->reset_channel(src, channel, 1); }
int TPPI_is_channel_reset(TPPI_NodeId dest, int channel) { return api()->is_channel_reset(dest, channel); }
void TPPI_destroy_channel_src(TPPI_NodeId dest, int channel) { api()->destroy_channel_src(dest, channel); }
void TPPI_destroy_channel_dst(TPPI_NodeId src, int channel) { api()->destroy_channel_dst(src, channel); }
void *TPPI_get_src_channel_user_ptr(TPPI_NodeId dest, int channel) { return api()->get_channel_user_ptr(dest, channel, 0); }
void *TPPI_get_dst_channel_user_ptr(TPPI_NodeId src, int channel) { return api()->get_channel_user_ptr(src, channel, 1); }
void TPPI_set_src_channel_user_ptr(TPPI_NodeId dest, int channel, void *user_ptr) {
    api()->set_channel_user_ptr(dest, channel, 0, user_ptr);
}
void TPPI_set_dst_channel_user_ptr(TPPI_NodeId src, int channel, void *user_ptr) {
    api()->set_channel_user_ptr(src, channel, 1, user_ptr);
}

void TPPI_schedule_timer(int ticks, TPPI_TimerHandlerPtr fn, void *user_ptr) { api()->schedule_timer(ticks, fn, user_ptr); }
void TPPI_resume_va(void *blk_va, int blk_len) { api()->resume_va(blk_va, blk_len); }
void TPPI_sleep(volatile int *sem_ptr) { api()->sleep(sem_ptr); }
void TPPI_wakeup(volatile int *sem_ptr) { api()->wakeup(sem_ptr); }
void TPPI_atomic_incr(volatile int *sem_ptr) { api()->atomic_incr(sem_ptr); }
