/* Runs one piece of assembly with every general register and the status flags set, and shows all of them afterwards.
 *
 * The piece is reached by an indirect jump and ends with `jmp *(%rsp)`: no calling convention holds, so no register
 * and no flag is free at any point of it, and every one is looked at afterwards. Registers are in encoding order: rax rcx rdx rbx rsp rbp rsi rdi r8..r15.
 */
#ifndef LAB_H
#define LAB_H
#include <stdint.h>

struct lab {
    uint64_t r[16];
    uint64_t flags;
};
enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };
enum { CF = 1, PF = 4, AF = 16, ZF = 64, SF = 128, DF = 1024, OF = 2048, STATUS = CF | PF | AF | ZF | SF | OF };

/* Not reentrant: the piece runs on a stack of its own, with rsp = LAB_RSP at its first instruction. */
void lab_run(void (*piece)(void), const struct lab *in, struct lab *out);
extern unsigned char lab_stack_top[];
#define LAB_RSP ((uint64_t)(lab_stack_top - 16))

/* All registers get different recognisable values, the flags `flags`. */
static inline void lab_fill(struct lab *in, uint64_t salt, uint64_t flags) {
    for (int i = 0; i < 16; i++)
        in->r[i] = (0x0101010101010101u * (uint64_t)(i + 1)) ^ (salt * 0x9e3779b97f4a7c15u);
    in->r[RSP] = LAB_RSP;
    in->flags = flags | 2;
}
#endif
