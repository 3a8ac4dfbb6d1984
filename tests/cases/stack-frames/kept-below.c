//# flags: -O2
//# link: -pie
//# nodes: 2
/* Assembly that keeps values below rsp while other code runs: that code's callees jump on through pointers, rsp is lowered again by a register, a bit is
 * read there by its number. Where registers are kept below rsp for a check, it found those. */
#include "blizzard.h"
#include <stdio.h>

#define F(n, body) long n(long *, long); __asm__(".text\n.globl " #n "\n.type " #n ",@function\n" #n ": .cfi_startproc\n" body "\n.cfi_endproc\n.size " #n ",.-" #n "\n");
#define BODY "mov $1,%eax; mov $2,%ecx; mov $3,%edx; mov $4,%esi; mov $5,%r8d; mov $6,%r9d; mov $7,%r10d; mov $8,%r11d; stc; adcq $0,(%rdi); adc %rcx,%rax; add %rdx,%rax; add %rsi,%rax; add %r8,%rax; add %r9,%rax; add %r10,%rax; add %r11,%rax; add %rdi,%rax; add %rbx,%rax; add %r12,%rax; add %r13,%rax; add %r14,%rax; add %r15,%rax; add %rbp,%rax\n"
#define PUT "mov %rsi,-16(%rsp); mov %rsi,-24(%rsp)\n"
#define GET "mov -16(%rsp),%rax; add -24(%rsp),%rax; ret"
void *volatile tab_1;
F(c_1, BODY "ret") F(g_1, "jmp *tab_1(%rip)") F(f_1, PUT "call g_1\n" GET)
void *volatile tab_2;
F(c_2, BODY "ret") F(g_2, "jmp *c_2@GOTPCREL(%rip)") F(f_2, PUT "call g_2\n" GET)
void *volatile tab_4;
F(c_4, BODY "ret") F(f_4, PUT "lea 1f(%rip),%rax; push %rax; lea c_4(%rip),%rax; push %rax; ret\n1: mov -24(%rsp),%rax; add %rax,%rax; ret")
void *volatile tab_5;
F(c_5, "ret") F(f_5, "push %rsi; push %rsi; add $16,%rsp\n" BODY "mov $-16,%rcx; add %rcx,%rsp; pop %rax; pop %rcx; add %rcx,%rax; ret")
void *volatile tab_10;
F(c_10, "ret") F(f_10, "push %rsi; add $8,%rsp\n" BODY "xor %eax,%eax; mov $-64,%rcx\n1: xor %edx,%edx; bt %rcx,(%rsp); rcr $1,%rax; inc %rcx; jnz 1b; add %rax,%rax; ret")
void *volatile tab_13;
F(c_13, "ret") F(f_13, "push %rsi; push %rsi; mov $-16,%rcx; sub %rcx,%rsp\n" BODY "sub $16,%rsp; pop %rax; pop %rcx; add %rcx,%rax; ret")

int main(void) {
    static const struct { long (*run)(long *, long); void *volatile *table; long (*callee)(long *, long); } ALL[] = {
        {f_1, &tab_1, c_1},
        {f_2, &tab_2, c_2},
        {f_4, &tab_4, c_4},
        {f_5, &tab_5, c_5},
        {f_10, &tab_10, c_10},
        {f_13, &tab_13, c_13},
    };
    if (bz_node() == 0) bz_publish(0, bz_alloc(4096));
    long *shared = bz_lookup(0);
    for (unsigned k = 0; k < sizeof ALL / sizeof *ALL; k++) {
        *ALL[k].table = ALL[k].callee;
        const long sum = ALL[k].run(shared, 111);
        if (bz_node() == 0) printf("%u: %ld\n", k, sum);
    }
    bz_barrier();
    return 0;
}
