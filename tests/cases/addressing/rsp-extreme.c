//# flags: -O2
//# link: -pie | -no-pie
//# refuse: displacement from rsp too near 2 GiB
/* A displacement off rsp so near the end of its range that it cannot be adjusted where the check moves rsp: refused, because
 * no register and no flag is free here. */
#include <stdio.h>

void extreme(void);
__asm__(".text\n"
        ".globl extreme\n"
        "extreme: pushfq\n"
        "  mov 0x7fffffff(%rsp,%rax,2), %r10\n"
        "  popfq\n"
        "  jmp *(%rsp)\n");

int main(int argc, char **argv) {
    if (argc > 1)
        extreme();
    puts("not executed");
    return 0;
}
