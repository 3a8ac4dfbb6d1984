//# flags: -O2
//# link: -pie | -static
//# compilers: gcc
//# nodes: 2
//# guarded-nodes: 2 3
/* Coroutines with stacks that have no room for the frames of a signal and of its handler. Neither the fault of an access to shared memory nor a trap byte nor the call of a peer,
 * which wants what they work on, may change what lies below such a stack, or need it: below the second one nothing can be written. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGES = 64, WORDS = PAGES * 512, BELOW = 1 << 16, STACK = 1536, PAGE = 4096, ROUNDS = 1000, READ = 2, END = 3 };
static volatile long *shared;
static long sum;

__attribute__((noinline, naked)) static void on(void *top, void (*work)(void)) {
    (void)top, (void)work;
    __asm__("push %rbx\n mov %rsp, %rbx\n mov %rdi, %rsp\n call *%rsi\n mov %rbx, %rsp\n pop %rbx\n ret");
}

/* Leads to an address that nobody can foresee: to a trap byte of the old code. */
static inline void trap(void) {
    __asm__ volatile("lea 1f(%%rip), %%rax\n add $2f - 1f, %%rax\n jmp *%%rax\n 1: ud2\n ud2\n 2:" ::: "rax", "cc", "memory");
}

__attribute__((noinline)) static void work(void) {
    if (bz_nodes() > 1) trap();
    for (int k = 0; k < PAGES; k++) {
        shared[k * 512] += k;
        sum += shared[k * 512 + 1];
    }
}

int main(void) {
    static unsigned char area[BELOW + STACK] __attribute__((aligned(PAGE)));
    if (bz_node() == 0) bz_publish(1, bz_alloc(WORDS * sizeof *shared));
    shared = bz_lookup(1);
    bz_barrier();
    if (bz_node() != 0) {
        while (!shared[END]) shared[READ];
        return bz_barrier(), 0;
    }
    memset(area, 0xa5, BELOW);
    for (int round = 0; round < ROUNDS; round++) on(area + sizeof area, work);
    int changed = 0;
    for (int k = 0; k < BELOW; k++) changed += area[k] != 0xa5;
    mprotect(area, BELOW, PROT_READ);
    for (int round = 0; round < ROUNDS; round++) on(area + sizeof area, work);
    shared[END] = 1;
    bz_barrier();
    long own = 0;
    for (int k = 0; k < PAGES; k++) own += shared[k * 512];
    printf("%d %ld %ld\n", changed, own, sum);
    return 0;
}
