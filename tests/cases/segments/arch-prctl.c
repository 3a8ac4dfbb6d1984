//# uses: blizzard
//# flags: -O2
//# link: -pie | -no-pie | -static
//# needs-cpu: fsgsbase
//# nodes: 1 2 3
//# refuse-guard: an operand with %gs
/* The bases of %fs and %gs by arch_prctl. %gs: zero may be set, and the accesses through it are checked after that. %fs: the thread's block may be elsewhere in
 * private memory for a while, and shared memory is still reached by everything else. What reads a base or a selector runs as it is. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

enum { SET_GS = 0x1001, SET_FS = 0x1002, GET_FS = 0x1003, GET_GS = 0x1004, BEFORE = 64, BEHIND = 2048 };

/* No call of the C library while %fs is elsewhere. */
static inline long set_base(long which, uint64_t value) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"((long)SYS_arch_prctl), "D"(which), "S"(value) : "rcx", "r11", "memory");
    return result;
}

static __thread uint64_t own = 5;
static char copy[BEFORE + BEHIND] __attribute__((aligned(64)));

__attribute__((optimize("no-stack-protector"), noinline)) static uint64_t elsewhere(uint64_t base, uint64_t offset, volatile uint64_t *shared) {
    uint64_t there = (uint64_t)copy + BEFORE, seen, self, result;
    memcpy(copy, (char *)base - BEFORE, sizeof copy);
    *(uint64_t *)(there + offset) = 1000;
    result = -set_base(SET_FS, there);
    /* With a prefix, by way of an address, and shared memory. */
    __asm__ volatile("rdfsbase %1\n mov %%fs:(%2), %0\n addq $1, %%fs:(%2)" : "=&r"(seen), "=&r"(self) : "r"(offset) : "memory", "cc");
    *shared += seen;
    result += -set_base(SET_FS, base);
    return result + (self != there) + (*(uint64_t *)(there + offset) != 1001);
}

int main(void) {
    if (bz_node() == 0) bz_publish(0, bz_alloc(4096));
    volatile uint64_t *shared = bz_lookup(0);
    uint64_t base = 0, gs = 1, wrong = 0, selector = 0, by_instruction = 1;
    wrong += syscall(SYS_arch_prctl, GET_FS, &base) != 0 || syscall(SYS_arch_prctl, GET_GS, &gs) != 0 || gs != 0;
    wrong += set_base(SET_GS, 0) != 0;
    __asm__ volatile("rdgsbase %0\n mov %%gs, %k1" : "=r"(by_instruction), "=r"(selector));
    wrong += by_instruction != 0 || selector != 0;
    for (unsigned round = 0; round < 12; round++) {
        if (round % bz_nodes() == bz_node()) {
            __asm__ volatile("addq $1, %%gs:(%0)" ::"r"(shared) : "memory", "cc");
            wrong += elsewhere(base, (uint64_t)&own - base, shared + 1);
            /* The call writes where another node has written. */
            wrong += syscall(SYS_arch_prctl, GET_GS, shared + 2) != 0;
            shared[2] += round;
        }
        bz_barrier();
    }
    wrong += own != 5;
    wrong = bz_reduce_sum_u64(wrong);
    if (bz_node() == 0) printf("%llu %llu %llu, %llu wrong\n", (unsigned long long)shared[0], (unsigned long long)shared[1], (unsigned long long)shared[2], (unsigned long long)wrong);
    return 0;
}
