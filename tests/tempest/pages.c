//# nodes: 1 2
/* Virtual memory management: sections 3.1.1 to 3.1.5. */
#include "check.h"

static int user_a, user_b;

/* 3.1, 3.1.1, 3.1.2: constants. */
static void constants(void) {
    EXPECT("3.1", TPPI_SEGMENT_BYTES >= (size_t)1 << 30 && (uintptr_t)TPPI_SEGMENT_BASE % TPPI_PAGE_SIZE == 0);
    EXPECT("3.1.1", TPPI_PAGE_SIZE == 1 << TPPI_PAGE_SHIFT && TPPI_PAGE_SIZE % TPPI_TAG_BLK_SIZE == 0);
    EXPECT("3.1.2", TPPI_MAX_PAGE_MODE == TPPI_NUM_PAGE_MODES - 1 && (TPPI_PageMode)-1 > 0);
    EXPECT("3.3.1", TPPI_num_nodes == bz_nodes() && TPPI_self_address == bz_node() && TPPI_self_address < TPPI_num_nodes);
    /* The segment is at the same place on all nodes. */
    EXPECT("2", bz_reduce_sum_u64((uintptr_t)TPPI_SEGMENT_BASE) == TPPI_num_nodes * (uintptr_t)TPPI_SEGMENT_BASE);
}

static void allocation(void) {
    char *p = page(3);
    EXPECT("3.1.3", TPPI_alloc_and_map(p, 7, TPPI_Blk_Writable, 1, &user_a) == 1);
    for (int i = 0; i < TPPI_PAGE_SIZE; i += 4)
        EXPECT("3.1.3", load(p + i) == 0);
    for (int i = 0; i < TPPI_PAGE_SIZE / TPPI_TAG_BLK_SIZE; i++)
        EXPECT("3.1.3", TPPI_get_blk_acc(block(3, i)) == TPPI_Blk_Writable);
    store(p, 5);
    /* The four failures. */
    EXPECT("3.1.3", TPPI_alloc_and_map(p, 7, TPPI_Blk_Writable, 1, 0) == 0);
    EXPECT("3.1.3", load(p) == 5 && TPPI_get_page_user_ptr(p) == &user_a);
    EXPECT("3.1.3", TPPI_alloc_and_map(page(4) + 8, 0, TPPI_Blk_Writable, 0, 0) == 0);
    EXPECT("3.1.3", TPPI_alloc_and_map(TPPI_SEGMENT_BASE - TPPI_PAGE_SIZE, 0, TPPI_Blk_Writable, 0, 0) == 0);
    EXPECT("3.1.3", TPPI_alloc_and_map(TPPI_SEGMENT_BASE + TPPI_SEGMENT_BYTES, 0, TPPI_Blk_Writable, 0, 0) == 0);
    EXPECT("3.1.3", TPPI_alloc_and_map(&user_a, 0, TPPI_Blk_Writable, 0, 0) == 0);
    /* The last page is as good as the first. */
    char *last = TPPI_SEGMENT_BASE + TPPI_SEGMENT_BYTES - TPPI_PAGE_SIZE;
    EXPECT("3.1.3", TPPI_alloc_and_map(last, TPPI_MAX_PAGE_MODE, TPPI_Blk_Writable, 0, 0) == 1);
    store(last + TPPI_PAGE_SIZE - 4, 9);
    EXPECT("3.1.3", load(last + TPPI_PAGE_SIZE - 4) == 9 && TPPI_unmap_and_free(last) == 1);
    for (int tag = 0; tag <= TPPI_MAX_BLK_ACC_TAG; tag++) {
        EXPECT("3.1.3", TPPI_alloc_and_map(page(10 + tag), 0, (TPPI_BlkAccTag)tag, 0, 0) == 1);
        EXPECT("3.1.3", (int)TPPI_get_blk_acc(page(10 + tag) + 777) == tag);
    }
}

static void deallocation(void) {
    EXPECT("3.1.3", TPPI_unmap_and_free(page(3) + 1) == 0 && TPPI_unmap_and_free(page(5)) == 0);
    EXPECT("3.1.3", TPPI_unmap_and_free(page(3)) == 1);
    EXPECT("3.1.3", TPPI_get_page_info(page(3), 0) == 0 && TPPI_unmap_and_free(page(3)) == 0);
    EXPECT("3.1.3", TPPI_alloc_and_map(page(3), 0, TPPI_Blk_Writable, 0, 0) == 1);
    EXPECT("3.1.3", load(page(3)) == 0); /* The data is gone. */
}

static void remapping(void) {
    store(page(3) + 100, 77);
    TPPI_change_blk_acc(block(3, 5), TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalidate);
    TPPI_change_blk_acc(block(3, 6), TPPI_TAG_BLK_SIZE, TPPI_Blk_Downgrade_RO);
    TPPI_unmap_and_free(page(3));
    EXPECT("3.1.3", TPPI_remap(page(3), page(6)) == 0);
    EXPECT("3.1.3", TPPI_alloc_and_map(page(3), 9, TPPI_Blk_Writable, 1, &user_b) == 1);
    store(page(3) + 100, 78);
    TPPI_change_blk_acc(block(3, 5), TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalidate);
    TPPI_change_blk_acc(block(3, 6), TPPI_TAG_BLK_SIZE, TPPI_Blk_Downgrade_RO);
    EXPECT("3.1.3", TPPI_remap(page(3), page(10)) == 0 && TPPI_remap(page(3), page(6) + 4) == 0);
    EXPECT("3.1.3", TPPI_remap(page(3), TPPI_SEGMENT_BASE - TPPI_PAGE_SIZE) == 0);
    EXPECT("3.1.3", TPPI_remap(page(3), page(6)) == 1);
    EXPECT("3.1.3", load(page(6) + 100) == 78 && TPPI_get_page_info(page(3), 0) == 0);
    EXPECT("3.1.3", TPPI_get_blk_acc(block(6, 5)) == TPPI_Blk_Invalid && TPPI_get_blk_acc(block(6, 6)) == TPPI_Blk_ReadOnly &&
                        TPPI_get_blk_acc(block(6, 7)) == TPPI_Blk_Writable);
    EXPECT("3.1.3", TPPI_get_page_mode(page(6)) == 9 && TPPI_get_page_home(page(6)) == 1 && TPPI_get_page_user_ptr(page(6)) == &user_b);
    EXPECT("3.1.3", TPPI_get_blk_acc(page(3)) == TPPI_Blk_Invalid);
}

static void information(void) {
    TPPI_PageInfo info = {1, 2, &info};
    EXPECT("3.1.5", TPPI_get_page_info(page(6) + 4095, &info) == 1);
    EXPECT("3.1.5", info.mode == 9 && info.home == 1 && info.usr_ptr == &user_b);
    EXPECT("3.1.5", TPPI_get_page_info(page(7), &info) == 0 && info.mode == 9);
    EXPECT("3.1.5", TPPI_get_page_info(&info, &info) == -1 && TPPI_get_page_info(page(6), 0) == 1);
    EXPECT("3.1.5", TPPI_get_page_info(page(6), (TPPI_PageInfo *)((char *)&info + 1)) == -1);
    EXPECT("3.1.5", TPPI_get_page_user_ptr(page(6) + 1) == &user_b && TPPI_get_page_mode(page(6) + 2) == 9 &&
                        TPPI_get_page_home(page(6) + 3) == 1);
}

/* Many pages, far apart, mapped and unmapped again: mapping costs no kernel record each. */
static void many(void) {
    enum { PAGES = 3000 };
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < PAGES; i++) {
            EXPECT("3.1.3", TPPI_alloc_and_map(page(1000 + 977l * i), 1, TPPI_Blk_Writable, 0, (void *)(intptr_t)i));
            store(page(1000 + 977l * i), i);
        }
        for (int i = PAGES - 1; i >= 0; i--)
            EXPECT("3.1.3", load(page(1000 + 977l * i)) == i && TPPI_get_page_user_ptr(page(1000 + 977l * i)) == (void *)(intptr_t)i &&
                                TPPI_unmap_and_free(page(1000 + 977l * i)));
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "limit") == 0) {
        /* 3.1.3: no memory. Run with --tempest-pages 10. */
        int got = 0;
        while (got < 100 && TPPI_alloc_and_map(page(got), 0, TPPI_Blk_Writable, 0, 0)) got++;
        EXPECT("3.1.3", got == 10);
        EXPECT("3.1.3", TPPI_remap(page(0), page(50)) == 1); /* Keeps its page. */
        EXPECT("3.1.3", TPPI_alloc_and_map(page(0), 0, TPPI_Blk_Writable, 0, 0) == 0);
        EXPECT("3.1.3", TPPI_unmap_and_free(page(50)) == 1 && TPPI_alloc_and_map(page(0), 0, TPPI_Blk_Writable, 0, 0) == 1);
        return done();
    }
    constants();
    allocation();
    deallocation();
    remapping();
    information();
    many();
    return done();
}
