//# uses: blizzard
//# flags: -O2
//# link: -pie | -no-pie
//# nodes: 2 3
/* Calls of the interface with rsp 8 off a multiple of 16, as hand-written code and coroutines make them. Most of the C library does not mind; the runtime's
 * functions crashed at a `movaps`. Accesses to shared memory are made on such a stack, too. */
#include "blizzard.h"
#include <stdio.h>

/* Calls `function` so. */
__attribute__((noinline)) static uint64_t off(void *function, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t result;
    register uint64_t fourth __asm__("rcx") = d;
    __asm__ volatile("mov %%rsp, %%rbx\n\t sub $256, %%rsp\n\t and $-16, %%rsp\n\t sub $8, %%rsp\n\t call *%1\n\t mov %%rbx, %%rsp"
                     : "=a"(result), "+r"(function), "+D"(a), "+S"(b), "+d"(c), "+r"(fourth)
                     :
                     : "memory", "cc", "rbx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
    return result;
}
#define OFF(name, a, b, c, d) off((void *)name, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d))

__attribute__((noinline)) static uint64_t add(uint64_t *word, uint64_t n) { return *word += n; }

int main(void) {
    uint64_t nodes = (uint32_t)OFF(bz_nodes, 0, 0, 0, 0), node = (uint32_t)OFF(bz_node, 0, 0, 0, 0), sum = 0;
    if (node == 0) {
        OFF(bz_publish, 0, OFF(bz_alloc, 4096, 0, 0, 0), 0, 0);
        OFF(bz_publish, 1, OFF(bz_lock_new, 0, 0, 0, 0), 0, 0);
        OFF(bz_publish, 2, OFF(bz_counter_new, 100, 0, 0, 0), 0, 0);
        OFF(bz_publish, 3, OFF(bz_event_new, 0, 0, 0, 0), 0, 0);
    }
    uint64_t *word = (uint64_t *)OFF(bz_lookup, 0, 0, 0, 0);
    void *lock = (void *)OFF(bz_lookup, 1, 0, 0, 0), *counter = (void *)OFF(bz_lookup, 2, 0, 0, 0), *event = (void *)OFF(bz_lookup, 3, 0, 0, 0);
    for (unsigned round = 0; round < 6 * 5 * 4; round++) {
        if (round % nodes == node) {
            OFF(bz_lock, lock, 0, 0, 0);
            OFF(add, word, round, 0, 0);
            OFF(bz_unlock, lock, 0, 0, 0);
            OFF(bz_fetch_add_u64, word + 8, 1, 0, 0);
            OFF(bz_counter_op, counter, BZ_ADD, 2, 0);
            OFF(bz_event_set, event, 0, 0, 0);
            OFF(bz_event_wait, event, 0, 0, 0);
            OFF(bz_prefetch, word, 64, 1, 0);
            OFF(bz_check_out, word + 16, 64, 1, 0);
            OFF(bz_check_in, word + 16, 64, 0, 0);
            OFF(bz_free, OFF(bz_alloc_on, node, 64, 0, 0), 0, 0, 0);
            sum += round;
        }
        OFF(bz_barrier, 0, 0, 0, 0);
    }
    sum = OFF(bz_reduce_sum_u64, sum, 0, 0, 0);
    OFF(bz_remote_fence, 0, 0, 0, 0);
    if (node == 0) printf("%llu %llu %llu %llu\n", (unsigned long long)word[0], (unsigned long long)word[8], (unsigned long long)sum, (unsigned long long)OFF(bz_counter_op, counter, BZ_ADD, 0, 0));
    return 0;
}
