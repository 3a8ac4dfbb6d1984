//# nodes: 1 2
//# run: --tempest-debug
/* Block access tags: sections 3.2.1 to 3.2.6. Debug runs count what table 2 does not allow; here everything is allowed. */
#include "check.h"

static volatile int faults;
static void grant(void *va, void *usr_ptr, TPPI_NodeId home) {
    (void)usr_ptr, (void)home;
    faults++;
    TPPI_change_blk_acc(va, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RW);
    TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);
}

static void set(char *b, TPPI_BlkAccTag tag) {
    TPPI_change_blk_acc(b, TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalidate);
    if (tag == TPPI_Blk_Busy) TPPI_change_blk_acc(b, TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalid_To_Busy);
    if (tag == TPPI_Blk_ReadOnly) TPPI_change_blk_acc(b, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RO);
    if (tag == TPPI_Blk_Writable) TPPI_change_blk_acc(b, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RW);
    EXPECT("3.2.5", TPPI_get_blk_acc(b) == tag);
}

/* 3.2.5, table 2: every entry. */
static void table_2(void) {
    static const struct { TPPI_BlkAccTag from, to; TPPI_BlkTagChange change[2]; } table[] = {
        {TPPI_Blk_Invalid, TPPI_Blk_Invalid, {TPPI_Blk_No_Tag_Change, TPPI_Blk_Invalidate}},
        {TPPI_Blk_Invalid, TPPI_Blk_Busy, {TPPI_Blk_Invalid_To_Busy, TPPI_Blk_Mark_Busy}},
        {TPPI_Blk_Invalid, TPPI_Blk_ReadOnly, {TPPI_Blk_Validate_RO, TPPI_Blk_Validate_RO}},
        {TPPI_Blk_Invalid, TPPI_Blk_Writable, {TPPI_Blk_Validate_RW, TPPI_Blk_Validate_RW}},
        {TPPI_Blk_Busy, TPPI_Blk_Invalid, {TPPI_Blk_Busy_To_Invalid, TPPI_Blk_Invalidate}},
        {TPPI_Blk_Busy, TPPI_Blk_Busy, {TPPI_Blk_No_Tag_Change, TPPI_Blk_Mark_Busy}},
        {TPPI_Blk_Busy, TPPI_Blk_ReadOnly, {TPPI_Blk_Validate_RO, TPPI_Blk_Validate_RO}},
        {TPPI_Blk_Busy, TPPI_Blk_Writable, {TPPI_Blk_Validate_RW, TPPI_Blk_Validate_RW}},
        {TPPI_Blk_ReadOnly, TPPI_Blk_Invalid, {TPPI_Blk_Invalidate, TPPI_Blk_Invalidate}},
        {TPPI_Blk_ReadOnly, TPPI_Blk_Busy, {TPPI_Blk_Mark_Busy, TPPI_Blk_Mark_Busy}},
        {TPPI_Blk_ReadOnly, TPPI_Blk_ReadOnly, {TPPI_Blk_No_Tag_Change, TPPI_Blk_No_Tag_Change}},
        {TPPI_Blk_ReadOnly, TPPI_Blk_Writable, {TPPI_Blk_Upgrade_RW, TPPI_Blk_Validate_RW}},
        {TPPI_Blk_Writable, TPPI_Blk_Invalid, {TPPI_Blk_Invalidate, TPPI_Blk_Invalidate}},
        {TPPI_Blk_Writable, TPPI_Blk_Busy, {TPPI_Blk_Mark_Busy, TPPI_Blk_Mark_Busy}},
        {TPPI_Blk_Writable, TPPI_Blk_ReadOnly, {TPPI_Blk_Downgrade_RO, TPPI_Blk_Downgrade_RO}},
        {TPPI_Blk_Writable, TPPI_Blk_Writable, {TPPI_Blk_No_Tag_Change, TPPI_Blk_Validate_RW}},
    };
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        for (int k = 0; k < 2; k++) {
            char *b = block(0, (int)i);
            set(b, table[i].from);
            TPPI_change_blk_acc(b + 13, TPPI_TAG_BLK_SIZE, table[i].change[k]); /* 3.2.3: any address in the block. */
            EXPECT("3.2.5 (table 2)", TPPI_get_blk_acc(b + 63) == table[i].to);
            EXPECT("3.2.5", TPPI_get_blk_acc(b) == table[i].to && TPPI_get_blk_acc(block(0, 40)) == TPPI_Blk_Writable);
        }
}

/* 3.2.1, 3.2.2 */
static void constants(void) {
    int all = 1 << TPPI_Blk_Busy | 1 << TPPI_Blk_Invalid | 1 << TPPI_Blk_ReadOnly | 1 << TPPI_Blk_Writable;
    EXPECT("3.2.1", all == 15 && TPPI_NUM_BLK_ACC_TAGS == 4 && TPPI_MAX_BLK_ACC_TAG == 3);
    EXPECT("3.2.2", TPPI_TAG_BLK_SIZE == 1 << TPPI_TAG_BLK_SHIFT);
    EXPECT("3.3.4", TPPI_MAX_AM_BYTES >= TPPI_TAG_BLK_SIZE + 16);
}

/* 3.2.3: superblocks, also of blocks with different tags and over pages. */
static void superblocks(void) {
    set(block(1, 4), TPPI_Blk_ReadOnly), set(block(1, 5), TPPI_Blk_Writable), set(block(1, 6), TPPI_Blk_Busy), set(block(1, 7), TPPI_Blk_Invalid);
    TPPI_change_blk_acc(block(1, 6) + 5, 4 * TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalidate);
    for (int i = 4; i < 8; i++)
        EXPECT("3.2.3", TPPI_get_blk_acc(block(1, i)) == TPPI_Blk_Invalid);
    EXPECT("3.2.3", TPPI_get_blk_acc(block(1, 3)) == TPPI_Blk_Writable && TPPI_get_blk_acc(block(1, 8)) == TPPI_Blk_Writable);
    TPPI_change_blk_acc(page(2) + 4096, 2 * TPPI_PAGE_SIZE, TPPI_Blk_Mark_Busy);
    for (int i = 0; i < 128; i++)
        EXPECT("3.2.3", TPPI_get_blk_acc(block(2, i)) == TPPI_Blk_Busy);
    TPPI_change_blk_acc(page(2), 2 * TPPI_PAGE_SIZE, TPPI_Blk_Validate_RW);
}

/* 3.2.5, 3.2.6: copy and change; whoever may access afterwards sees the new data. */
static void copies(void) {
    char data[256];
    for (int i = 0; i < 256; i++) data[i] = (char)(i * 3);
    for (int size = 64; size <= 256; size *= 2) {
        TPPI_change_blk_acc(block(3, 8), size, TPPI_Blk_Mark_Busy);
        TPPI_change_blk_acc_and_copy(block(3, 8) + size / 2, size, TPPI_Blk_Validate_RO, data);
        int before = faults;
        EXPECT("3.2.6", memcmp(block(3, 8), data, (size_t)size) == 0 && faults == before);
        TPPI_change_blk_acc_and_copy(block(3, 8), size, TPPI_Blk_Invalidate, block(3, 40));
        EXPECT("3.2.6", load(block(3, 8)) == 0 && faults == before + 1);
        TPPI_change_blk_acc_and_copy(block(3, 8), size, TPPI_Blk_No_Tag_Change, data);
    }
}

/* 3.2.4 outside the segment: any tag, no harm. */
static void elsewhere(void) {
    int x;
    EXPECT("3.2.4", (unsigned)TPPI_get_blk_acc(&x) < TPPI_NUM_BLK_ACC_TAGS && TPPI_get_blk_acc(page(500)) == TPPI_Blk_Invalid);
    (void)TPPI_get_blk_acc((void *)-1l);
}

int main(int argc, char **argv) {
    for (int p = 0; p < 4; p++)
        TPPI_alloc_and_map(page(p), 1, TPPI_Blk_Writable, 0, 0);
    TPPI_register_blk_acc_fault_handler(1, TPPI_Blk_Invalid, TPPI_ReadAccess, grant);
    TPPI_register_blk_acc_fault_handler(1, TPPI_Blk_Invalid, TPPI_WriteAccess, grant);
    if (argc > 1 && strcmp(argv[1], "bad") == 0) {
        /* 3.2.5: seven changes that table 2 does not allow: counted in a debug run. */
        static const TPPI_BlkTagChange bad[] = {TPPI_Blk_Upgrade_RW, TPPI_Blk_Invalid_To_Busy, TPPI_Blk_Busy_To_Invalid, TPPI_Blk_Validate_RO};
        for (int i = 0; i < 4; i++)
            set(block(0, i), TPPI_Blk_Writable), TPPI_change_blk_acc(block(0, i), TPPI_TAG_BLK_SIZE, bad[i]);
        set(block(0, 8), TPPI_Blk_Invalid), TPPI_change_blk_acc(block(0, 8), TPPI_TAG_BLK_SIZE, TPPI_Blk_Downgrade_RO);
        TPPI_change_blk_acc(block(1, 0), 128, TPPI_Blk_Upgrade_RW); /* A superblock: two. */
        return done();
    }
    constants();
    table_2();
    superblocks();
    copies();
    elsewhere();
    return done();
}
