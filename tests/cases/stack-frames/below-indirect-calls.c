//# flags: -O2
//# link: -pie | -static
//# nodes: 2
/* Assembly that keeps a value below rsp while it calls through a pointer what does not use the stack. Its callee has no free register and a live carry where
 * it accesses shared memory: the rewriter kept registers below rsp there, and the caller found one of them in place of its value. */
#include "blizzard.h"
#include <stdio.h>

long keeps(long *p, long x);
void *volatile table[2];
void callee(void);

__asm__(".text\n"
        ".globl keeps\n\t.type keeps, @function\n"
        "keeps:\n\t.cfi_startproc\n"
        "mov %rsi, -16(%rsp)\n\t"
        "mov %rsi, -24(%rsp)\n\t"
        "mov %rsi, -32(%rsp)\n\t"
        "call *table+8(%rip)\n\t"
        "mov -16(%rsp), %rax\n\t"
        "add -24(%rsp), %rax\n\t"
        "add -32(%rsp), %rax\n\t"
        "ret\n\t.cfi_endproc\n\t.size keeps, . - keeps\n"
        ".globl callee\n\t.type callee, @function\n"
        "callee:\n\t.cfi_startproc\n"
        "mov $1, %eax\n\tmov $2, %ecx\n\tmov $3, %edx\n\tmov $4, %esi\n\tmov $5, %r8d\n\tmov $6, %r9d\n\tmov $7, %r10d\n\tmov $8, %r11d\n\t"
        "stc\n\tadcq $1, (%rdi)\n\tadcq $0, 64(%rdi)\n\tadc %rcx, %rax\n\t"
        "add %rdx, %rax\n\tadd %rsi, %rax\n\tadd %r8, %rax\n\tadd %r9, %rax\n\tadd %r10, %rax\n\tadd %r11, %rax\n\t"
        "add %rbx, %rax\n\tadd %r12, %rax\n\tadd %r13, %rax\n\tadd %r14, %rax\n\tadd %r15, %rax\n\tadd %rbp, %rax\n\t"
        "ret\n\t.cfi_endproc\n\t.size callee, . - callee\n");

int main(void) {
    table[1] = (void *)callee;
    if (bz_node() == 0) {
        bz_publish(0, bz_alloc(4096));
    }
    long *p = bz_lookup(0), wrong = 0;
    for (long x = 111; x < 211; x++) {
        wrong += keeps(p, x) != 3 * x;
    }
    if (bz_node() == 0) {
        printf("%ld wrong\n", wrong);
    }
    return 0;
}
