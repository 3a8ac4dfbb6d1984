//# flags: -O2
//# link: -pie
//# nodes: 2
/* Assembly that calls, and has an object below rsp, which it stores and loads from the object's end: by a pointer that goes down, by a negative index, or
 * through an address that was in memory meanwhile, or in a register that nobody follows. Others leave values below rsp by raising it. A function that calls was taken for one that keeps
 * nothing there, as long as each address that it made was not below; registers were kept there for a check. */
#include "blizzard.h"
#include <stdio.h>

#define F(n, body) long n(long *, long); __asm__(".text\n.globl " #n "\n.type " #n ",@function\n" #n ": .cfi_startproc\n" body "\n.cfi_endproc\n.size " #n ",.-" #n "\n");
#define BODY "mov $1,%eax; mov $2,%ecx; mov $3,%edx; mov $4,%esi; mov $5,%r8d; mov $6,%r9d; mov $7,%r10d; mov $8,%r11d; stc; adcq $0,(%rdi); adc %rcx,%rax; add %rdx,%rax; add %rsi,%rax; add %r8,%rax; add %r9,%rax; add %r10,%rax; add %r11,%rax; add %rdi,%rax; add %rbx,%rax; add %r12,%rax; add %r13,%rax; add %r14,%rax; add %r15,%rax; add %rbp,%rax\n"
#define CALLS "sub $24,%rsp; lea -128(%rsp),%rsp; call callee; lea 128(%rsp),%rsp\n"
#define SUM "mov $-24,%rcx; xor %eax,%eax\n3: add 8(%rsp,%rcx),%rax; add $8,%rcx; jnz 3b; add $24,%rsp; ret"
F(callee, "ret")
F(by_pointer, CALLS "lea 8(%rsp),%rcx; mov $3,%edx\n1: sub $8,%rcx; mov %rsi,(%rcx); dec %edx; jnz 1b\n" BODY SUM)
F(by_index, CALLS "mov $-24,%rcx\n1: mov %rsi,8(%rsp,%rcx); add $8,%rcx; jnz 1b\n" BODY SUM)
F(from_memory, CALLS "lea 8(%rsp),%rcx; mov %rcx,16(%rsp); mov 16(%rsp),%rdx; mov %rsi,-8(%rdx); mov %rsi,-16(%rdx); mov %rsi,-24(%rdx)\n" BODY SUM)
F(raised_over, CALLS "add $24,%rsp; push %rsi; push %rsi; add $16,%rsp\n" BODY "mov $-2,%rcx; mov (%rsp,%rcx,8),%rax; inc %rcx; add (%rsp,%rcx,8),%rax; ret")
#define FRAME "push %rbp; mov %rsp,%rbp\n"
#define TWO "mov -8(%rbp),%rax; add -16(%rbp),%rax; pop %rbp; ret"
F(by_copy, "push %rbx; mov %rsp,%rbx; push %rsi; pop %rax\n" BODY "lea -8(%rbx),%rsp; pop %rax; pop %rbx; ret")
F(by_bit, FRAME "mov $-64,%rcx\n1: bts %rcx,(%rbp); inc %rcx; jnz 1b\n" BODY "xor %eax,%eax; mov $-64,%rcx\n1: bt %rcx,(%rbp); adc $0,%rax; inc %rcx; jnz 1b; pop %rbp; ret")
F(by_distance, "mov %rdi,%rdx; mov %rsp,%rcx; sub %rcx,%rdx; mov %rdi,%rax; sub %rdx,%rax; mov %rsi,-8(%rax)\n" BODY "mov $-1,%rcx; mov (%rsp,%rcx,8),%rax; ret")
F(to_label, "mov label(%rip),%rax; mov %rax,(%rsp); ret")
F(at_label, FRAME "call to_label; mov %rsi,%rax; pop %rbp; ret\n1: mov %rsi,-8(%rbp); mov %rsi,-16(%rbp)\n" BODY TWO "\n.section .data.rel.ro; label: .quad 1b; .text")
F(by_negative, FRAME "push %rsi; push %rsi; mov $-16,%rcx; sub %rcx,%rsp; mov %rsi,-8(%rbp); mov %rsi,-16(%rbp)\n" BODY TWO)
F(gives_77, "mov $77,%eax; ret")
F(by_call, FRAME "lea gives_77(%rip),%rax; push %rax; pop %rax\n" BODY "call *-8(%rbp); pop %rbp; ret")
F(by_compare, FRAME "push %rsi; push %rsi; add $16,%rsp\n" BODY "xor %eax,%eax; cmpq $111,-8(%rbp); sete %al; cmpq $111,-16(%rbp); sete %cl; movzbl %cl,%ecx; add %rcx,%rax; pop %rbp; ret")
F(by_kernel, "mov %rdi,%r8; mov $-16,%rcx; lea (%rsp,%rcx),%rdi; lea 4(%rdi),%rsi; lea 8(%rdi),%rdx; mov $118,%eax; syscall; mov %r8,%rdi\n" BODY "mov $-16,%rcx; mov (%rsp,%rcx),%eax; mov 4(%rsp,%rcx),%ecx; sub %rcx,%rax; ret")
F(by_mmx, FRAME "movq %rbp,%mm0; movq %mm0,%rdx; emms; mov %rsi,-8(%rdx); mov %rsi,-16(%rdx)\n" BODY TWO)

int main(void) {
    long (*const ALL[])(long *, long) = {by_pointer, by_index, from_memory, raised_over, by_copy, by_bit, by_distance,
                                         at_label, by_negative, by_call, by_compare, by_kernel, by_mmx};
    if (bz_node() == 0) bz_publish(0, bz_alloc(4096));
    long *shared = bz_lookup(0);
    for (unsigned k = 0; k < sizeof ALL / sizeof *ALL; k++) {
        const long sum = ALL[k](shared, 111);
        if (bz_node() == 0) printf("%u: %ld\n", k, sum);
    }
    bz_barrier();
    return 0;
}
