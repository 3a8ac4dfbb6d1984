//# flags: -O2
//# link: -pie | -no-pie | -no-pie -s | -Wl,-z,noseparate-code
//# with: data_in_text_code.S
/* Constants, strings and tables between and inside the functions of .text: they are read as data and must keep their bytes. */
#include "arena.h"

extern uint64_t sum_table(uint64_t), inline_constant(uint64_t), crypt(uint64_t, uint64_t), after_string(uint64_t);
extern const char *text_of(uint64_t);
extern const unsigned char round_constants[32], table_in_text[64];

int main(void) {
    for (uint64_t n = 0; n < 30; n++) {
        printf("%llx %llx %llx %llx %s\n", (unsigned long long)sum_table(n % 8), (unsigned long long)inline_constant(n),
               (unsigned long long)crypt(n, n * 77), (unsigned long long)after_string(n), text_of(n % 3));
    }
    mix_bytes(table_in_text, 64);
    report("table");
    mix_bytes(round_constants, 32);
    report("round constants");
    return 0;
}
