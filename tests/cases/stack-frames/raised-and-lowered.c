//# uses: blizzard
//# flags: -O2
//# link: -pie | -no-pie
//# nodes: 2
/* Code that raises rsp over what it has pushed, or over its return address, and lowers it again: meanwhile the red zone keeps the bytes. The rewriter took
 * bytes below rsp for free if no instruction names them, and kept registers there for its checks. All registers are in use at the check. */
#include "blizzard.h"
#include <stdio.h>

#define BODY                                                                                                                         \
    " mov $1,%eax; mov $2,%ecx; mov $3,%edx; mov $4,%esi; mov $5,%r8d; mov $6,%r9d; mov $7,%r10d; mov $8,%r11d\n"                     \
    " add (%rdi),%rax; add %rcx,%rax; add %rdx,%rax; add %rsi,%rax; add %r8,%rax; add %r9,%rax; add %r10,%rax; add %r11,%rax\n"       \
    " add %rdi,%rax\n"
#define FUNCTION(name, text)                                                                                                         \
    long name(long *p);                                                                                                              \
    __asm__(".text\n.type " #name ", @function\n" #name ":\n" text "\n.size " #name ", .-" #name "\n");
#define SUM "pop %rax; pop %rcx; add %rcx,%rax; pop %rcx; add %rcx,%rax; ret"

FUNCTION(by_lea, "push $111; push $222; push $333; lea 24(%rsp),%rsp\n" BODY "lea -24(%rsp),%rsp; " SUM)
FUNCTION(by_add, "push $111; push $222; push $333; add $24,%rsp\n" BODY "sub $24,%rsp; " SUM)
FUNCTION(by_pop, "push $111; push $222; push $333; pop %rax; pop %rax; pop %rax\n" BODY "add $-24,%rsp; " SUM)
FUNCTION(over_jump, "push $111; push $222; push $333; add $24,%rsp; test %rdi,%rdi; jz 1f; jmp 2f\n1: ud2\n2:\n" BODY "jmp 3f\n nop\n3: sub $24,%rsp; " SUM)
FUNCTION(return_address, "pop %rax\n" BODY "sub $8,%rsp; mov $1,%eax; ret")
FUNCTION(return_behind, "lea 8(%rsp),%rsp\n" BODY "test %rdi,%rdi; jz 1f\n1: sub $8,%rsp; mov $1,%eax; jmp 2f\n2: ret")

int main(void) {
    if (bz_node() == 0) {
        long *p = bz_alloc(4096);
        *p = 5;
        bz_publish(0, p);
    }
    long *p = bz_lookup(0);
    const long sums[] = {by_lea(p), by_add(p), by_pop(p), over_jump(p), return_address(p), return_behind(p)};
    long wrong = 0;
    for (unsigned i = 0; i < sizeof sums / sizeof *sums; i++) wrong |= (sums[i] != (i < 4 ? 666 : 1)) << i;
    const long all = bz_reduce_sum_u64(wrong);
    if (bz_node() == 0) printf("wrong: %#lx\n", all);
    return all != 0;
}
