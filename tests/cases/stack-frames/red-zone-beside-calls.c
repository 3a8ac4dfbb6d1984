//# flags: -O1 -fno-omit-frame-pointer | -O2 -fno-omit-frame-pointer | -O2
//# link: -pie | -static
//# nodes: 2
/* Inline assembly that calls, and steps over the red zone first, as it must: the compiler takes the function for a leaf and keeps an array in the red
 * zone. The rewriter took a function that calls for one that keeps nothing there, and kept registers in it for its checks. What lies there must
 * follow from the accesses: here through a frame pointer that equals rsp. */
#include "blizzard.h"
#include <stdio.h>

__attribute__((noinline, used)) static void helper(void) { __asm__ volatile(""); }

__attribute__((noinline)) static long sum(long *p, long x) {
    volatile long a[6] = {x, x + 1, x + 2, x + 3, x + 4, x + 5};
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\t call helper\n\t lea 128(%%rsp), %%rsp" ::: "memory", "cc");
    long t;
    /* All registers and the carry are live at the accesses. */
    __asm__ volatile("mov $1, %%eax\n\t mov $2, %%ecx\n\t mov $3, %%edx\n\t mov $4, %%esi\n\t mov $5, %%r8d\n\t mov $6, %%r9d\n\t"
                     "mov $7, %%r10d\n\t mov $8, %%r11d\n\t stc\n\t adcq $1, (%%rdi)\n\t adcq $0, 64(%%rdi)\n\t adc %%rcx, %%rax\n\t"
                     "add %%rdx, %%rax\n\t add %%rsi, %%rax\n\t add %%r8, %%rax\n\t add %%r9, %%rax\n\t add %%r10, %%rax\n\t add %%r11, %%rax\n\t"
                     "add %%rbx, %%rax\n\t sub %%rbx, %%rax\n\t add %%r12, %%rax\n\t sub %%r12, %%rax\n\t add %%r13, %%rax\n\t sub %%r13, %%rax\n\t"
                     "add %%r14, %%rax\n\t sub %%r14, %%rax\n\t add %%r15, %%rax\n\t sub %%r15, %%rax"
                     : "=&a"(t)
                     : "D"(p)
                     : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
    return t + a[0] + a[1] + a[2] + a[3] + a[4] + a[5];
}

int main(void) {
    if (bz_node() == 0) {
        bz_publish(0, bz_alloc(4096));
    }
    long *p = bz_lookup(0), wrong = 0;
    for (long x = 0; x < 100; x++) {
        if (sum(p, x) != 36 + 6 * x + 15) {
            wrong++;
        }
    }
    if (bz_node() == 0) {
        printf("%ld wrong\n", wrong);
    }
    return 0;
}
