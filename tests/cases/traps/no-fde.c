//# flags: -O0 -fno-asynchronous-unwind-tables | -O2 -fno-asynchronous-unwind-tables -fno-unwind-tables | -Os -fno-asynchronous-unwind-tables -fvisibility=hidden
//# link: -pie | -pie -s | -no-pie -s
/* Functions without unwind entries and, stripped, without symbols: they are found by what refers to them, some only through
 * offsets in a table. */
#include "arena.h"

#define NOINLINE __attribute__((noinline))
NOINLINE static uint64_t one(uint64_t a) { return a * 3 + 1; }
NOINLINE static uint64_t two(uint64_t a) { return one(a) ^ a >> 7; }
NOINLINE static uint64_t three(uint64_t a) { uint64_t s = 0; for (uint64_t i = 0; i < a % 50; i++) s += two(i + a); return s; }
static uint64_t (*const table[])(uint64_t) = {one, two, three};
extern const int32_t offsets[3];
__asm__(".text\n"
        ".balign 32\n"
        "only_by_offset_1: lea 5(%rdi,%rdi,2), %rax\n ret\n"
        ".balign 32\n"
        "only_by_offset_2: mov %rdi, %rax\n ror $3, %rax\n ret\n"
        "only_by_offset_3: push %rdi\n call only_by_offset_1\n pop %rdi\n xor %rdi, %rax\n ret\n"
        ".section .rodata\n.balign 4\n"
        ".globl offsets\n"
        "offsets: .long only_by_offset_1 - offsets, only_by_offset_2 - offsets, only_by_offset_3 - offsets\n"
        ".text\n");

int main(void) {
    uint64_t a = 1;
    for (unsigned i = 0; i < 200; i++) {
        a = table[i % 3](a) + i, mix(a);
        uint64_t (*function)(uint64_t) = (uint64_t (*)(uint64_t))((const char *)offsets + offsets[i % 3]);
        a = function(a), mix(a);
    }
    report("without FDE");
    return 0;
}
