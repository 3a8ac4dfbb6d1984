//# compilers: gcc clang
//# flags: -O2
//# link: -pie -s
//# refuse: may be both code and constants
/* A function that no symbol and no frame tells, called through a register, and its bytes are summed: they can not be kept for the one
 * and be replaced for the other. */
#include "arena.h"

extern uint64_t sum_and_call(uint64_t);
__asm__(".text\n.balign 16\n"
        "1: lea 3(%rdi), %rax\n add %rdi, %rax\n ret\n"
        ".globl sum_and_call\n.type sum_and_call, @function\nsum_and_call: .cfi_startproc\n"
        " push %rbx\n .cfi_adjust_cfa_offset 8\n"
        " lea 1b(%rip), %rbx\n call *%rbx\n add (%rbx), %rax\n"
        " pop %rbx\n .cfi_adjust_cfa_offset -8\n ret\n"
        ".cfi_endproc\n.size sum_and_call, .-sum_and_call\n");

int main(void) {
    printf("%llx\n", (unsigned long long)sum_and_call(5));
    return 0;
}
