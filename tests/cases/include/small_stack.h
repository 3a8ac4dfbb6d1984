/* A stack between painted bytes, for accesses each of which finds memory of another node's. */
#include "blizzard.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGES = 64, PAGE_WORDS = 1024, ABOVE = 4096, BELOW = 1 << 16 };
static int *shared;
static int page;
static long sum;

__attribute__((noinline, naked)) static void on(void *top, void (*work)(void)) {
    (void)top, (void)work;
    __asm__("push %rbx\n mov %rsp, %rbx\n mov %rdi, %rsp\n call *%rsi\n mov %rbx, %rsp\n pop %rbx\n ret");
}

/* Calls `work` for each page, on a stack of so many bytes; how many bytes below it have changed. */
static int overrun(unsigned char *area, int bytes, void (*work)(void)) {
    int changed = 0;
    memset(area, 0xa5, BELOW);
    for (page = 0; page < PAGES; page++) on(area + BELOW, work);
    for (int k = 0; k < BELOW - bytes; k++) changed += area[k] != 0xa5;
    return changed;
}

/* On a stack of its own, and on one within that of `main`: `kind` says what for. The last node's stores are what there is. */
static void check(const char *kind, int bytes, void (*work)(void)) {
    unsigned char within[BELOW + ABOVE] __attribute__((aligned(64)));
    unsigned char *own = mmap(0, BELOW + ABOVE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *areas[] = {own, within};
    for (int k = 0; k < 2; k++) {
        bz_barrier();
        if (bz_node() == bz_nodes() - 1)
            for (int i = 0; i < PAGES * PAGE_WORDS; i++) shared[i] = i % 1000;
        bz_barrier();
        sum = 0;
        int changed = bz_node() == 0 ? overrun(areas[k], bytes, work) : 0;
        bz_barrier();
        if (bz_node() != 0) continue;
        for (int i = 0; i < PAGES * PAGE_WORDS; i++) sum += shared[i];
        printf("%s: %d changed, %ld\n", kind, changed, sum);
    }
}

static void begin(void) {
    if (bz_node() == 0) bz_publish(1, bz_alloc(PAGES * PAGE_WORDS * sizeof *shared));
    shared = bz_lookup(1);
}
