//# flags: -O2 -falign-functions=64 -falign-loops=32 | -O2 -falign-functions=1 | -O3 -falign-labels=16
//# link: -pie | -no-pie -s
//# with: alignment_padding.S
/* Padding of every kind between and inside functions: multi-byte nops, int3, zero bytes, garbage behind a jump. */
#include "arena.h"
extern uint64_t padded(uint64_t *, uint64_t);
__attribute__((noinline)) static uint64_t loops(uint64_t n) {
    uint64_t s = 0;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = i; j < n; j += 3)
            s = s * 31 + (i ^ j);
    return s;
}
int main(void) {
    uint64_t data[16] = {1, 2, 3};
    for (uint64_t n = 0; n < 60; n++)
        mix(padded(data, n)), mix(loops(n));
    mix_bytes(data, sizeof data);
    report("padding");
    return 0;
}
