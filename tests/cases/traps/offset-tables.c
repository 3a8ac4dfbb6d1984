//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
//# with: offset_tables_code.S
/* An interpreter whose operations are found by a table of 16-bit distances from where its code begins, as LuaJIT's; and one whose table has 32 bits
 * and is called through. What is computed is stored, and jumped to from somewhere else. */
#include "arena.h"

extern char operations_begin[];
extern const uint16_t operation_distances[];
extern const int32_t call_distances[];
extern char calls_begin[];
uint64_t interpret(void *const *dispatch, const unsigned char *program, uint64_t value);

int main(void) {
    static void *dispatch[8];
    for (unsigned i = 0; i < 8; i++)
        dispatch[i] = operations_begin + operation_distances[i];
    unsigned char program[64];
    for (unsigned n = 0; n < 100; n++) {
        for (unsigned i = 0; i < 63; i++)
            program[i] = (unsigned char)((i * 7 + n) % 7);
        program[63] = 7;
        mix(interpret(dispatch, program, n));
        mix(((uint64_t (*)(uint64_t))(calls_begin + call_distances[n % 4]))(n));
    }
    report("tables of distances");
    return 0;
}
