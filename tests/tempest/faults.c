//# nodes: 1 2 3
/* Page faults and block access faults: sections 2, 3.1.4, 3.2.7 and 3.6. */
#include "check.h"
#include <immintrin.h>

/* Handlers run inside loads and stores, so the compiler must be told that what they change changes there. */
static volatile struct { int count, is_write, last_pc; void *va, *usr_ptr, *pc; TPPI_NodeId home; } seen;
static int user;

static void note(void *va, void *usr_ptr, TPPI_NodeId home) {
    seen.count++;
    seen.va = va, seen.usr_ptr = usr_ptr, seen.home = home;
}

static void page_fault(void *va, int pc, int is_write) {
    note(va, 0, 0);
    seen.is_write = is_write, seen.last_pc = pc, seen.pc = TPPI_fault_pc();
    EXPECT("3.1.3", TPPI_alloc_and_map((char *)va - ((uintptr_t)va & (TPPI_PAGE_SIZE - 1)), 1, TPPI_Blk_Invalid, TPPI_num_nodes - 1, &user));
    TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);
}

static volatile int order[5], orders;
#define HANDLER(name, n, change)                                              \
    static void name(void *va, void *usr_ptr, TPPI_NodeId home) {             \
        note(va, usr_ptr, home);                                              \
        order[orders++ % 5] = n;                                              \
        TPPI_change_blk_acc(va, TPPI_TAG_BLK_SIZE, change);                   \
        TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);                                \
    }
HANDLER(invalid_read, 0, TPPI_Blk_Validate_RO)
HANDLER(invalid_write, 1, TPPI_Blk_Validate_RW)
HANDLER(busy_read, 2, TPPI_Blk_Validate_RO)
HANDLER(busy_write, 3, TPPI_Blk_Validate_RW)
HANDLER(readonly_write, 4, TPPI_Blk_Upgrade_RW)

static void register_all(TPPI_PageMode mode) {
    TPPI_register_blk_acc_fault_handler(mode, TPPI_Blk_Invalid, TPPI_ReadAccess, invalid_read);
    TPPI_register_blk_acc_fault_handler(mode, TPPI_Blk_Invalid, TPPI_WriteAccess, invalid_write);
    TPPI_register_blk_acc_fault_handler(mode, TPPI_Blk_Busy, TPPI_ReadAccess, busy_read);
    TPPI_register_blk_acc_fault_handler(mode, TPPI_Blk_Busy, TPPI_WriteAccess, busy_write);
    TPPI_register_blk_acc_fault_handler(mode, TPPI_Blk_ReadOnly, TPPI_WriteAccess, readonly_write);
}

/* 3.1.4: the handler gets the address, the pc and the kind of access; the access is done after the resumption. */
static void page_faults(void) {
    EXPECT("3.1.4", load(page(0) + 100) == 0);
    EXPECT("3.1.4", seen.va == page(0) + 100 && seen.is_write == 0 && seen.last_pc == (int)(intptr_t)seen.pc);
    EXPECT("3.1.4", seen.count == 2); /* The page, and then the Invalid block. */
    void *first = seen.pc;
    store(page(1) + 200, 7);
    EXPECT("3.1.4", seen.va == page(1) + 200 && seen.is_write != 0 && seen.pc != 0 && seen.pc != first);
    EXPECT("3.1.4", load(page(1) + 200) == 7 && seen.count == 4);
    EXPECT("3.1.4", TPPI_fault_pc() == 0);
}

/* 3.2.7 and table 1: the five handlers, each for its tag and access; usr_ptr and home; nothing else faults. */
static void five_cases(void) {
    static const struct { TPPI_BlkTagChange from; int is_write, handler; } cases[] = {
        {TPPI_Blk_Invalidate, 0, 0}, {TPPI_Blk_Invalidate, 1, 1}, {TPPI_Blk_Mark_Busy, 0, 2},
        {TPPI_Blk_Mark_Busy, 1, 3},  {TPPI_Blk_Validate_RO, 1, 4},
    };
    for (int i = 0; i < 5; i++) {
        char *b = block(1, 10 + i);
        TPPI_change_blk_acc(b, TPPI_TAG_BLK_SIZE, cases[i].from);
        int before = seen.count;
        orders = 0;
        if (cases[i].is_write) store(b + 12, i); else (void)load(b + 12);
        EXPECT("3.2.7", seen.count == before + 1 && order[0] == cases[i].handler);
        EXPECT("3.2.7", (char *)seen.va >= b && (char *)seen.va < b + TPPI_TAG_BLK_SIZE);
        EXPECT("3.2.7", seen.usr_ptr == &user && seen.home == TPPI_num_nodes - 1);
        EXPECT("2 (table 1)", TPPI_get_blk_acc(b) == (cases[i].is_write ? TPPI_Blk_Writable : TPPI_Blk_ReadOnly));
        (void)load(b + 20);
        EXPECT("2 (table 1)", seen.count == before + 1);
    }
}

/* Sets of handlers belong to page modes. */
static volatile int other_mode;
static void other(void *va, void *usr_ptr, TPPI_NodeId home) {
    (void)usr_ptr, (void)home;
    other_mode++;
    TPPI_change_blk_acc(va, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RW);
    TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);
}
static void modes(void) {
    TPPI_register_blk_acc_fault_handler(TPPI_MAX_PAGE_MODE, TPPI_Blk_Invalid, TPPI_ReadAccess, other);
    EXPECT("3.1.3", TPPI_alloc_and_map(page(20), TPPI_MAX_PAGE_MODE, TPPI_Blk_Invalid, 0, 0));
    int before = seen.count;
    EXPECT("3.2.7", load(page(20)) == 0 && other_mode == 1 && seen.count == before);
}

/* Accesses of several blocks: all of them are accessible when the instruction runs. */
static void straddling(void) {
    EXPECT("3.1.3", TPPI_alloc_and_map(page(30), 1, TPPI_Blk_Invalid, 0, 0));
    EXPECT("3.1.3", TPPI_alloc_and_map(page(31), 1, TPPI_Blk_Invalid, 0, 0));
    *(volatile uint64_t *)(page(31) - 3) = 0x1122334455667788;
    EXPECT("2", *(volatile uint64_t *)(page(31) - 3) == 0x1122334455667788);
    memset(page(30), 0x5a, 2 * TPPI_PAGE_SIZE);
    char copy[2 * TPPI_PAGE_SIZE];
    TPPI_change_blk_acc(page(30), TPPI_PAGE_SIZE, TPPI_Blk_Invalidate);
    memcpy(copy, page(30), sizeof copy);
    for (unsigned i = 0; i < sizeof copy; i++)
        EXPECT("2", copy[i] == 0x5a);
    const char *text = "a string that is longer than one block of sixty-four bytes, so that it straddles";
    TPPI_change_blk_acc(page(30), TPPI_PAGE_SIZE, TPPI_Blk_Mark_Busy);
    strcpy(block(30, 1) - 20, text);
    TPPI_change_blk_acc(page(30), TPPI_PAGE_SIZE, TPPI_Blk_Invalidate);
    EXPECT("2", strcmp(block(30, 1) - 20, text) == 0);
}

/* The program's registers are its own, whatever handlers do with theirs. */
__attribute__((target("avx"), noinline)) static void spoil(void) {
    __m256d v = _mm256_set1_pd(-1);
    __asm__ volatile("" : "+x"(v));
    __asm__ volatile("vxorps %%ymm0,%%ymm0,%%ymm0\n vmovaps %%ymm0,%%ymm7\n vmovaps %%ymm0,%%ymm15\n vzeroupper" ::: "xmm0", "xmm7", "xmm15");
    volatile long double x = 1.25L, y = 0;
    for (int i = 0; i < 20; i++)
        y += x * i;
}
static void spoiling(void *va, void *usr_ptr, TPPI_NodeId home) {
    (void)usr_ptr, (void)home;
    if (__builtin_cpu_supports("avx")) spoil();
    TPPI_change_blk_acc(va, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RW);
    TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);
}
__attribute__((target("avx"), noinline)) static void with_registers(char *at) {
    double in[4] = {1, 2, 3, 4}, out[4];
    uint64_t gpr[4], value, flags;
    long double st;
    __asm__ volatile("vmovupd %[in], %%ymm7\n vmovupd %[in], %%ymm15\n fldpi\n fld1\n"
                     "mov $11, %%r8\n mov $12, %%r11\n mov $13, %%rbx\n stc\n"
                     "movq (%[at]), %[value]\n"
                     "pushfq\n popq %[flags]\n"
                     "mov %%r8, %[g0]\n mov %%r11, %[g1]\n mov %%rbx, %[g2]\n"
                     "faddp\n fstpt %[st]\n vaddpd %%ymm7, %%ymm15, %%ymm7\n vmovupd %%ymm7, %[out]\n vzeroupper"
                     : [value] "=&r"(value), [flags] "=&r"(flags), [g0] "=m"(gpr[0]), [g1] "=m"(gpr[1]), [g2] "=m"(gpr[2]),
                       [st] "=m"(st), [out] "=m"(out)
                     : [in] "m"(in), [at] "r"(at)
                     : "r8", "r11", "rbx", "xmm7", "xmm15", "st", "st(1)", "memory", "cc");
    EXPECT("2", gpr[0] == 11 && gpr[1] == 12 && gpr[2] == 13 && (flags & 1) == 1);
    EXPECT("2", out[0] == 2 && out[1] == 4 && out[2] == 6 && out[3] == 8);
    EXPECT("2", st > 4.14159265L && st < 4.14159266L);
}
static void registers(void) {
    TPPI_register_blk_acc_fault_handler(5, TPPI_Blk_Invalid, TPPI_ReadAccess, spoiling);
    EXPECT("3.1.3", TPPI_alloc_and_map(page(40), 5, TPPI_Blk_Invalid, 0, 0));
    if (__builtin_cpu_supports("avx"))
        for (int i = 0; i < 64; i++)
            with_registers(block(40, i));
    double sum = 0;
    TPPI_change_blk_acc(page(40), TPPI_PAGE_SIZE, TPPI_Blk_Invalidate);
    for (int i = 0; i < 512; i++)
        sum += ((double *)page(40))[i] + 0.5 * i;
    EXPECT("2", sum == 0.5 * 511 * 512 / 2);
}

/* 3.6: a resumed access that its tag still does not allow faults again. */
static volatile int tries;
static void reluctant(void *va, void *usr_ptr, TPPI_NodeId home) {
    (void)usr_ptr, (void)home;
    if (++tries == 3) TPPI_change_blk_acc(va, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RO);
    TPPI_resume_va(va, TPPI_PAGE_SIZE);
}
static void resumption(void) {
    TPPI_register_blk_acc_fault_handler(6, TPPI_Blk_Invalid, TPPI_ReadAccess, reluctant);
    EXPECT("3.1.3", TPPI_alloc_and_map(page(41), 6, TPPI_Blk_Invalid, 0, 0));
    EXPECT("3.6", load(page(41) + 4) == 0 && tries == 3);
    TPPI_resume_va(page(41), TPPI_TAG_BLK_SIZE); /* Nobody is suspended there. */
}

/* Each lane of a gather is an access. */
__attribute__((target("avx2"), noinline)) static int gathered(const char *from, int distance) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i places = _mm256_mullo_epi32(_mm256_set1_epi32(distance), lanes);
    int values[8], sum = 0;
    _mm256_storeu_si256((__m256i *)values, _mm256_i32gather_epi32((const int *)from, places, 1));
    for (int k = 0; k < 8; k++) sum += values[k];
    return sum;
}
static void gathers(void) {
    if (!__builtin_cpu_supports("avx2")) return;
    char *b = block(1, 20);
    for (int k = 0; k < 8; k++) store(b + k * TPPI_TAG_BLK_SIZE, k + 1);
    for (int k = 0; k < 8; k += 2) TPPI_change_blk_acc(b + k * TPPI_TAG_BLK_SIZE, TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalidate);
    const int before = seen.count, sum = gathered(b, TPPI_TAG_BLK_SIZE);
    EXPECT("3.2.7", sum == 36 && seen.count == before + 4);
}
int main(void) {
    TPPI_register_page_fault_handler(page_fault);
    register_all(1);
    page_faults();
    five_cases();
    modes();
    straddling();
    registers();
    resumption();
    gathers();
    return done();
}
