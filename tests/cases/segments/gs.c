//# flags: -O2
//# link: -pie | -static
//# nodes: 2 3
//# refuse-guard: an operand with %gs
/* Accesses through %gs, whose base is zero: they reach shared memory like any other. They counted as thread-local and had no check, so every
 * node worked on a copy of its own. One form of each kind: read-modify-write, load and store with an index, vectors, pushes, calls. */
#include "blizzard.h"
#include <stdint.h>
#include <stdio.h>

static long twice(long x) { return 2 * x; }

int main(void) {
    if (bz_node() == 0) {
        bz_publish(0, bz_alloc(4096));
    }
    long *p = bz_lookup(0);
    if (bz_node() == 0) {
        p[64] = (long)(uintptr_t)twice;
    }
    bz_barrier();
    for (unsigned round = 0; round < 12; round++) {
        if (round % bz_nodes() == bz_node()) {
            long seen, index = 8, three = 3;
            __asm__ volatile("addq $1, %%gs:(%0)" ::"r"(p) : "memory", "cc");
            __asm__ volatile("lock xaddq %0, %%gs:8(%1)" : "+r"(three) : "r"(p) : "memory", "cc");
            __asm__ volatile("movq %%gs:(%1,%2,8), %0\n\t add $5, %0\n\t movq %0, %%gs:(%1,%2,8)"
                             : "=&r"(seen) : "r"(p), "r"(index) : "memory", "cc");
            __asm__ volatile("movdqu %%gs:128(%0), %%xmm1\n\t paddq %%xmm1, %%xmm1\n\t movdqu %%xmm1, %%gs:144(%0)"
                             ::"r"(p) : "memory", "xmm1");
            __asm__ volatile("lea -128(%%rsp), %%rsp\n\t push %%gs:(%0)\n\t pop %%gs:192(%0)\n\t lea 128(%%rsp), %%rsp"
                             ::"r"(p) : "memory");
            long x = p[3] + 1;
            __asm__ volatile("mov %%rsp, %%rbx\n\t sub $256, %%rsp\n\t and $-16, %%rsp\n\t call *%%gs:512(%1)\n\t mov %%rbx, %%rsp"
                             : "=a"(x) : "r"(p), "D"(x)
                             : "memory", "cc", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11");
            p[3] = x;
            p[16]++;
        }
        bz_barrier();
    }
    if (bz_node() == 0) {
        printf("%ld %ld %ld %ld %ld %ld\n", p[0], p[1], p[8], p[18], p[24], p[3]);
    }
    return 0;
}
