//# flags: -O2
//# link: -pie | -no-pie | -no-pie -s
//# with: assembly_tables.S
/* Tables as compilers and people write them: 8-byte absolute, 4-byte relative to the table, 4-byte relative to a label, byte
 * offsets scaled, tables in .text behind the jump, two jumps that share a table, an index that is loaded from memory, and cases that cannot happen,
 * which lead to no instruction: the tables of libclang were taken to end there. */
#include "arena.h"

extern uint64_t absolute8(uint64_t, uint64_t), relative4(uint64_t, uint64_t), from_label(uint64_t, uint64_t),
    in_text(uint64_t, uint64_t), shared_one(uint64_t, uint64_t), shared_two(uint64_t, uint64_t), memory_index(uint64_t *, uint64_t),
    byte_offsets(uint64_t, uint64_t), impossible_cases(uint64_t, uint64_t), compared_cases(uint64_t, uint64_t);

int main(void) {
    uint64_t a = 5;
    for (uint64_t i = 0; i < 40; i++) {
        a = absolute8(i % 6, a), mix(a);
        a = relative4(i % 7, a), mix(a);
        a = from_label(i % 4, a), mix(a);
        a = in_text(i % 5, a), mix(a);
        a = shared_one(i % 4, a), mix(a);
        a = shared_two(i % 4, a), mix(a);
        uint64_t index = i % 5;
        a = memory_index(&index, a), mix(a);
        a = byte_offsets(i % 4, a), mix(a);
        a = impossible_cases(i % 3 * 3, a), mix(a);
        a = compared_cases(i % 3 * 3, a), mix(a);
    }
    report("assembly tables");
    return 0;
}
