/* What the specification forbids or leaves undefined: each ends the run with a message that names the function or the rule. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

static void nothing(TPPI_NodeId src, int size) { (void)src, (void)size; }
static void leave_one(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    TPPI_recv_W();
}
static void read_too_much(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    TPPI_recv_W(), TPPI_recv_W(), TPPI_recv_W();
}
static void forward_too_much(TPPI_NodeId src, int size) { TPPI_send_F(src, nothing, size + 4); }
static volatile int sem;
static void sleeper(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    TPPI_sleep(&sem);
}
static void waiter(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    bz_barrier();
}
static void leaver(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    exit(0);
}
static void toucher(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    load(page(1));
}
static void ignoring(void *va, void *usr_ptr, TPPI_NodeId home) { (void)va, (void)usr_ptr, (void)home; }
static void flooded(TPPI_NodeId src, int size) {
    static int body[64];
    (void)src;
    TPPI_recv_R(body, size);
    for (;;) TPPI_send_R(0, flooded, body, 256);
}
static int buffer[64];
static void send_twice(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    TPPI_channel_send(0, 0, buffer, 4), TPPI_channel_send(0, 0, buffer, 4);
}

static void to_self(TPPI_MessageHandlerPtr fn, int words) {
    if (words) TPPI_send_WW(TPPI_self_address, fn, 1, 2);
    else TPPI_send(TPPI_self_address, fn);
    for (;;) sched_yield();
}

static void *idle(void *argument) { return argument; }
static void start_thread(void) {
    pthread_t thread;
    if (!pthread_create(&thread, 0, idle, 0)) pthread_join(thread, 0);
}
int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
#define IF(name) if (strcmp(how, name) == 0)
    TPPI_alloc_and_map(page(0), 1, TPPI_Blk_Writable, 0, 0);
    TPPI_alloc_and_map(page(1), 1, TPPI_Blk_Invalid, 0, 0);
    bz_barrier();
    IF("register-readonly-read") TPPI_register_blk_acc_fault_handler(0, TPPI_Blk_ReadOnly, TPPI_ReadAccess, ignoring);
    IF("register-writable-read") TPPI_register_blk_acc_fault_handler(0, TPPI_Blk_Writable, TPPI_ReadAccess, ignoring);
    IF("register-writable-write") TPPI_register_blk_acc_fault_handler(0, TPPI_Blk_Writable, TPPI_WriteAccess, ignoring);
    IF("register-nonsense") TPPI_register_blk_acc_fault_handler(0, TPPI_Blk_Invalid, 2, ignoring);
    IF("register-mode") TPPI_register_blk_acc_fault_handler(TPPI_NUM_PAGE_MODES, TPPI_Blk_Invalid, 0, ignoring);
    IF("register-data") TPPI_register_page_fault_handler((TPPI_PageFaultHandlerPtr)(uintptr_t)buffer);
    IF("map-mode") TPPI_alloc_and_map(page(9), TPPI_NUM_PAGE_MODES, TPPI_Blk_Invalid, 0, 0);
    IF("block-length") TPPI_change_blk_acc(page(0), 96, TPPI_Blk_Invalidate);
    IF("block-small") TPPI_change_blk_acc(page(0), 32, TPPI_Blk_Invalidate);
    IF("block-unmapped") TPPI_change_blk_acc(page(2), 64, TPPI_Blk_Invalidate);
    IF("block-private") TPPI_change_blk_acc(buffer, 64, TPPI_Blk_Invalidate);
    IF("change-nonsense") TPPI_change_blk_acc(page(0), 64, (TPPI_BlkTagChange)9);
    IF("page-fault") load(page(7));
    IF("block-fault") load(page(1));
    IF("send-nowhere") TPPI_send(TPPI_num_nodes, nothing);
    IF("send-data") TPPI_send(0, (TPPI_MessageHandlerPtr)(uintptr_t)buffer);
    IF("send-null") TPPI_send(0, 0);
    IF("send-null-region") TPPI_send_R(0, nothing, 0, 8);
    IF("send-null-items") TPPI_send_items(0, nothing, 0, 3);
    IF("copy-null") TPPI_change_blk_acc_and_copy(page(0), 64, TPPI_Blk_No_Tag_Change, 0);
    IF("send-long") TPPI_send_RR(0, nothing, page(0), TPPI_PAGE_SIZE, page(0), 260);
    IF("send-odd") TPPI_send_R(0, nothing, buffer, 6);
    IF("send-skew") TPPI_send_R(0, nothing, (char *)buffer + 2, 8);
    IF("send-negative") TPPI_send_R(0, nothing, buffer, -4);
    IF("send-forward") TPPI_send_F(0, nothing, 4);
    IF("recv-outside") TPPI_recv_W();
    IF("recv-left") to_self(leave_one, 2);
    IF("recv-too-much") to_self(read_too_much, 2);
    IF("forward-too-much") to_self(forward_too_much, 2);
    IF("handler-sleeps") to_self(sleeper, 0);
    IF("handler-waits") to_self(waiter, 0);
    IF("handler-exits") to_self(leaver, 0);
    IF("handler-faults") to_self(toucher, 0);
    IF("flood") {
        /* Node 0 waits in the kernel and takes nothing. */
        if (TPPI_self_address == 0) for (;;) pause();
        to_self(flooded, 2);
    }
    IF("flood-self") to_self(flooded, 2);
    IF("never-resumed") {
        TPPI_register_blk_acc_fault_handler(1, TPPI_Blk_Invalid, TPPI_ReadAccess, ignoring);
        load(page(1));
    }
    IF("sleep-forever") TPPI_sleep(&sem);
    IF("resume-length") TPPI_resume_va(page(0), 3);
    IF("channel-unknown") TPPI_channel_send(0, 5, buffer, 4);
    IF("channel-length") TPPI_set_channel_dst(0, 0, buffer, 6, 0);
    IF("channel-null") TPPI_set_channel_dst(0, 0, 0, 8, 0);
    IF("channel-send-null") TPPI_channel_send(0, TPPI_set_channel_src(0, 0), 0, 8);
    IF("channel-src-pointer") TPPI_get_src_channel_user_ptr(0, 5);
    IF("channel-dst-pointer") TPPI_set_dst_channel_user_ptr(0, 5, buffer);
    IF("channel-coherent") TPPI_set_channel_dst(0, 0, bz_alloc(64), 64, 0);
    IF("channel-twice") TPPI_set_channel_dst(0, 0, buffer, 8, 0), TPPI_set_channel_dst(0, 0, buffer, 8, 0);
    IF("channel-busy") {
        int c = TPPI_set_channel_src(0, 0);
        TPPI_set_channel_dst(0, c, buffer + 8, 4, 0);
        to_self(send_twice, 0); /* In a handler, so that nothing happens between the two. */
    }
    IF("channel-no-destination") {
        TPPI_channel_send(TPPI_self_address, TPPI_set_channel_src(TPPI_self_address, 0), buffer, 4);
        for (;;) sched_yield();
    }
    IF("channel-wrong-size") {
        int c = TPPI_set_channel_src(TPPI_self_address, 0);
        TPPI_set_channel_dst(TPPI_self_address, c, buffer, 8, 0);
        TPPI_channel_send(TPPI_self_address, c, buffer + 8, 12);
        for (;;) sched_yield();
    }
    IF("channel-not-reset") {
        int c = TPPI_set_channel_src(TPPI_self_address, 0);
        TPPI_set_channel_dst(TPPI_self_address, c, buffer, 8, 0);
        for (;;) {
            TPPI_channel_send(TPPI_self_address, c, buffer + 8, 8);
            while (!TPPI_is_channel_ready(TPPI_self_address, c)) {}
            sched_yield();
        }
    }
    IF("thread") start_thread();
    IF("timer-null") TPPI_schedule_timer(1, 0, 0);
    printf("not reached\n");
    return 0;
}
