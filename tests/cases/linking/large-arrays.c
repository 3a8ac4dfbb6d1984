//# flags: -O2 | -O2 -mcmodel=medium
//# link: -pie | -no-pie -s
/* Arrays of 1.25 GiB between code and new code, of which a few pages are touched. */
#include "arena.h"
#define BYTES (5ul << 27)
static char first[BYTES];
static uint64_t second[BYTES / 8];
uint64_t behind = 7;

int main(void) {
    for (uint64_t at = 0; at < BYTES; at += BYTES / 16) {
        first[at] += at >> 24;
        second[at / 8] ^= at + behind;
    }
    uint64_t sum = 0;
    for (uint64_t at = 0; at < BYTES; at += BYTES / 16)
        sum = sum * 31 + first[at] + second[at / 8];
    printf("%llx\n", (unsigned long long)sum);
    return 0;
}
