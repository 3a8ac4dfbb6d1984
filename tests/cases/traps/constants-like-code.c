//# flags: -O2
//# link: -pie | -no-pie | -pie -s | -no-pie -s
//# with: constants_like_code.S
/* Constants in .text that read as instructions, named by `lea` or standing behind a call that does not return: they were taken for
 * code and overwritten, and the program computed with trap bytes (libcrypto's ChaCha20, AES and AVX2 GHASH). Beside them functions
 * that only their addresses name must still be rewritten. */
#include "arena.h"

extern uint64_t constants_behind_a_call(uint64_t), constants_through_a_callee(uint64_t), other_processor(uint64_t);
extern uint64_t (*bare_function(uint64_t))(uint64_t);

int main(void) {
    for (uint64_t n = 0; n < 4; n++)
        printf("%llx %llx %llx %llu\n", (unsigned long long)constants_behind_a_call(n),
               (unsigned long long)constants_through_a_callee(n), (unsigned long long)bare_function(n)(n),
               (unsigned long long)other_processor(n));
    return 0;
}
