//# flags: -O2
//# link: -pie
//# nodes: 2
/* Assembly that returns otherwise than by the word its caller pushed, or calls otherwise than by `call`, with all registers in use at the place where it goes on. The
 * rewriter took such returns for ordinary ones and used registers that the calling convention gives away: the sums held addresses. A return is ordinary only
 * where it is proven to take the function's own return address. */
#include "blizzard.h"
#include <stdio.h>

#define F(n, body) long n(long *); __asm__(".text\n.type " #n ",@function\n" #n ": .cfi_startproc\n" body "\n.cfi_endproc\n.size " #n ",.-" #n "\n");
#define SET "mov $1,%eax; mov $2,%ecx; mov $3,%edx; mov $4,%esi; mov $5,%r8d; mov $6,%r9d; mov $7,%r10d; mov $8,%r11d\n"
#define SUM "add %rcx,%rax; add %rdx,%rax; add %rsi,%rax; add %r8,%rax; add %r9,%rax; add %r10,%rax; add %r11,%rax\n"
#define ACC "add (%rdi),%rax\n"
/* 1 */
F(g_1, ACC "ret") F(f_1, SET "push %rbx; lea 1f(%rip),%rbx; xchg %rbx,(%rsp); jmp g_1\n1: " SUM "ret")
/* 2 */
F(g_2, ACC "ret") F(f_2, SET "push %rbx; lea 1f(%rip),%rbx; xchg %rbx,(%rsp); test %rdi,%rdi; jnz g_2\n ud2\n1: " SUM "ret")
/* 3 */
F(f_3, "pop %rsi; movq %rsi,%xmm0; lea 1f(%rip),%rsi; push %rsi\n" SET "jmp 2f\n nop\n1: " SUM "movq %xmm0,%rdx; jmp *%rdx\n2: " ACC "ret")
/* 4 */
F(f_4, SET "push %rbx; lea 1f(%rip),%rbx; test %rdi,%rdi; jnz 4f\n push %rbx; push %rbx; jmp 5f\n4: push %rbx; jmp 5f\n nop\n1: pop %rbx\n" SUM "ret\n5: " ACC "ret")
/* 5 */
F(g_5, "addq $2,(%rsp)\n" ACC "ret") F(f_5, SET "call g_5\n ud2\n" SUM "ret")
/* 6 */
F(g_6, ACC "leave; ret") F(h_6, "push %rbp; mov %rsp,%rbp; call g_6\n ud2") F(f_6, SET "call h_6\n" SUM "ret")
/* 7 */
F(i_7, ACC "add $16,%rsp; ret") F(h_7, "call i_7\n ud2") F(g_7, "call h_7\n ud2") F(f_7, SET "call g_7\n" SUM "ret")
/* 8 */
F(g_8, "pop %rbp\n" ACC "push %rbp; ret") F(f_8, "push %rbp\n" SET "call g_8\n pop %rbp\n" SUM "ret")
/* 9 */
void *sv_9; F(g_9, "popq sv_9(%rip)\n" ACC "jmp *sv_9(%rip)") F(f_9, SET "call g_9\n" SUM "ret")
/* 10 */
F(g_10, "push %rbp; mov %rsp,%rbp; addq $2,8(%rbp)\n" ACC "pop %rbp; ret") F(f_10, SET "call g_10\n ud2\n" SUM "ret")
/* 11 */
void *sv_11; void *st_11[4096];
F(f_11, "mov %rsp,sv_11(%rip); lea 1f(%rip),%rax; mov %rax,st_11+16384(%rip)\n" SET "lea st_11+16384(%rip),%rsp; test %rdi,%rdi; jz 2f\n" ACC "ret\n1: mov sv_11(%rip),%rsp\n" SUM "2: ret")
/* 12 */
F(f_12, SET "push %rbx; lea back_12(%rip),%rbx; xchg %rbx,(%rsp)") F(g_12, ACC "ret") F(k_12, "nop\nback_12: " SUM "ret")
/* 13 */
F(g_13, ACC "ret") F(f_13, SET "push %rbx; push %rbx; push %rbx; lea 1f(%rip),%rbx; mov %rbx,8(%rsp); lea g_13(%rip),%rbx; mov %rbx,(%rsp); mov 16(%rsp),%rbx; ret\n1: pop %rbx; " SUM "ret")

/* 14: a store that overlaps the return address, and begins below. */
__asm__(".data\n.balign 16\nwords_14: .quad 0, back_14\n.text\n");
F(g_14, "movups words_14(%rip),%xmm0; movups %xmm0,-8(%rsp)\n" ACC "ret") F(f_14, SET "call g_14\n ud2\nback_14: " SUM "ret")
/* 15 */
F(g_15, "subq $-512,-1(%rsp)\n" ACC "ret") F(f_15, SET "call g_15\n ud2\n" SUM "ret")
/* 16: nobody knows how far down rsp is at the jump. */
F(g_16, ACC "ret") F(f_16, "push %rbp; mov %rsp,%rbp; and $-16,%rsp; lea 1f(%rip),%rax; push %rax\n" SET "jmp g_16\n ud2\n1: " SUM "leave; ret")
/* 17: what is called in other words calls on. */
F(h_17, ACC "ret") F(g_17, "nop; jmp h_17") F(f_17, SET "push %rbx; lea 1f(%rip),%rbx; xchg %rbx,(%rsp); jmp g_17\n ud2\n1: " SUM "ret")
/* 18 */
F(h_18, ACC "ret") F(g_18, "test %rdi,%rdi; jnz h_18\n ret") F(f_18, SET "push %rbx; lea 1f(%rip),%rbx; xchg %rbx,(%rsp); jmp g_18\n ud2\n1: " SUM "ret")
/* 19: rsp and rbp as second operands that are written (xchg %rbp,%rcx in its other encoding). */
F(f_19, "push %rbp; mov %rsp,%rbp; lea 1f(%rip),%rax; push %rax; push (%rbp); mov %rsp,%rcx; .byte 0x48,0x87,0xe9\n" SET ACC "leave; ret\n1: " SUM "pop %rbp; ret")
/* 20 */
F(f_20, "lea 1f(%rip),%rax; push %rax; mov %rsp,%rcx; add $8,%rsp; xadd %rsp,%rcx\n" SET ACC "ret\n1: " SUM "ret")
/* 21: an ordinary return behind pushes of two bytes, and of segment registers. */
F(f_21, SET "pushw %bx; pushw %bx; pushw %bx; pushw %bx; push %fs; add $8,%rsp\n" ACC SUM "pop %rcx; ret")

int main(void) {
    static long (*const ALL[])(long *) = {f_1, f_2, f_3, f_4, f_5, f_6, f_7, f_8, f_9, f_10, f_11, f_12, f_13, f_14, f_15, f_16, f_17, f_18, f_19, f_20, f_21};
    if (bz_node() == 0) bz_publish(0, bz_alloc(4096));
    long *shared = bz_lookup(0);
    for (unsigned k = 0; k < sizeof ALL / sizeof *ALL; k++) {
        const long sum = ALL[k](shared);
        if (bz_node() == 0) printf("%u: %ld\n", k, sum);
    }
    bz_barrier();
    return 0;
}
