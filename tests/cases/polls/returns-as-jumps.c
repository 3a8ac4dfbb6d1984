//# flags: -O2
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 2
//# timeout: 60
/* Loops that go round by a `ret`: to the return address that is still there when rsp has been lowered again. Of `add` and `sub` with a small number and of `dec`
 * the rewriter did not know that they lower rsp, so these had no poll: a signal that was put off was never handled. A label in front of the `ret` hid it
 * from verify, and a branch in front of it from both. Where a jump led to the `ret`, a check in the loop kept a register where the return address lay. */
#include "blizzard.h"
#include "late.h"

#define LOOP(name, lower)                                                                                                            \
    void name(volatile unsigned *);                                                                                                    \
    __asm__(".text\n.type " #name ", @function\n" #name ": .cfi_startproc\n call 3f\n1: cmpl $0, (%rdi)\n jne 2f\n " lower \
            "\n3: ret\n2: ret\n.cfi_endproc\n.size " #name ", .-" #name "\n.globl " #name);
LOOP(by_sub, "sub $8, %rsp")
LOOP(by_add, "add $-8, %rsp")
LOOP(by_large_sub, "sub $0x1008, %rsp; add $0x1000, %rsp")
LOOP(by_lea, "lea -8(%rsp), %rsp")
LOOP(by_dec, "dec %rsp; dec %rsp; dec %rsp; dec %rsp; dec %rsp; dec %rsp; dec %rsp; dec %rsp")
LOOP(by_jump, "lea -8(%rsp), %rsp; jmp 3f; nop")
LOOP(by_ways, "xor %eax, %eax; test %eax, %eax; jne 4f; push $0; jmp 5f; 4: push $1; 5: lea 1b(%rip), %rcx; xchg %rcx, (%rsp); jmp 3f; nop")
LOOP(by_push, "lea 1b(%rip), %rax; push %rax")

int main(void) {
    static const struct { const char *name; void (*run)(volatile unsigned *); } LOOPS[] = {
        {"sub", by_sub}, {"add", by_add}, {"large sub", by_large_sub}, {"lea", by_lea}, {"dec", by_dec}, {"push", by_push}, {"jump", by_jump}, {"ways", by_ways},
    };
    for (unsigned i = 0; i < sizeof LOOPS / sizeof *LOOPS; i++) {
        int64_t late = bz_reduce_max_i64(late_by(LOOPS[i].run));
        if (bz_node() == 0) printf("%s: handled %s\n", LOOPS[i].name, late_words(late));
    }
    return 0;
}
