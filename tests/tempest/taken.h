/* A block that handlers take away all the time: whoever uses it all the same sees the poison. */
#include "check.h"
#include <time.h>

enum { GOOD = 0x600d, POISON = 0xbad };
static int good[TPPI_TAG_BLK_SIZE / sizeof(int)];
static volatile int taken, given;
static char *b;

static void take(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    if (TPPI_get_blk_acc(b) == TPPI_Blk_Writable) {
        for (unsigned i = 0; i < TPPI_TAG_BLK_SIZE; i += sizeof(int)) store(b + i, POISON);
        TPPI_change_blk_acc(b, TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalidate);
    }
    taken++;
}
static void give(void *va, void *usr_ptr, TPPI_NodeId home) {
    (void)usr_ptr, (void)home;
    given++;
    TPPI_change_blk_acc_and_copy(b, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RW, good);
    TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);
}
static void prepare(void) {
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++) good[i] = GOOD;
    b = block(0, 3);
    TPPI_register_blk_acc_fault_handler(1, TPPI_Blk_Invalid, TPPI_ReadAccess, give);
    TPPI_register_blk_acc_fault_handler(1, TPPI_Blk_Invalid, TPPI_WriteAccess, give);
    EXPECT("3.1.3", TPPI_alloc_and_map(page(0), 1, TPPI_Blk_Invalid, 0, 0));
}

/* Loops, so it polls: where something waits to be handled, it is. */
__attribute__((noinline)) static void polls(void) {
    for (volatile int i = 0; i < 8; i++)
        ;
}

#define X4(x) x x x x
#define X64(x) X4(X4(X4(x)))
/* Straight lines of loads, of which one check covers many. */
__attribute__((noinline)) static int loads(void) {
    int wrong = 0;
    volatile int *at = (volatile int *)b;
    X4(X64(wrong |= at[0] ^ GOOD; wrong |= at[5] ^ GOOD;))
    return wrong != 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
