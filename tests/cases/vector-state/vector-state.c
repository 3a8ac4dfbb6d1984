//# flags: -O2
//# link: -pie | -no-pie -s
//# with: vector_state_pieces.S
//# needs-cpu: avx2
//# shared: 2 3
/* All vector registers, mask registers, the x87 stack and mxcsr keep their contents over accesses, which miss in a shared
 * run, over polls and over string instructions. */
#include "arena.h"

extern void state_avx2(unsigned char *memory, const unsigned char *before, unsigned char *after);
extern void state_avx512(unsigned char *memory, const unsigned char *before, unsigned char *after);
static unsigned char before[4096] __attribute__((aligned(64))), after[4096] __attribute__((aligned(64)));

static void compare(const char *name, void (*state)(unsigned char *, const unsigned char *, unsigned char *), int bytes) {
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < bytes; i++)
            before[i] = (unsigned char)(i * 7 + round * 13 + (i >> 6));
        memset(after, 0, sizeof after);
        state(ARENA, before, after);
        for (int i = 0; i < bytes; i++)
            EXPECT(before[i] == after[i], "%s, round %d: byte %d of register %d", name, round, i % 64, i / 64);
    }
    mix_bytes(ARENA, 16384);
}

int main(void) {
    arena_begin(16384);
    for (int i = 0; i < 16384; i++)
        ARENA[i] = (unsigned char)(i ^ i >> 8);
    compare("AVX2", state_avx2, 16 * 64);
    report("AVX2");
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
        compare("AVX-512", state_avx512, 40 * 64);
    else
        compare("AVX2 again", state_avx2, 16 * 64);
    puts("done");
    return case_result();
}
