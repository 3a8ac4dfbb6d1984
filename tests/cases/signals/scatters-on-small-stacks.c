//# flags: -O2 -mavx512f
//# link: -pie | -static
//# compilers: gcc
//# needs-cpu: avx512f
//# nodes: 2
//# guarded-nodes: 2 3
/* As gathers-on-small-stacks, with scatters and large registers. */
#include "small_stack.h"
#include <immintrin.h>

enum { BYTES = 2048 };

__attribute__((noinline)) static void scatter(void) {
    __m512i at = _mm512_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240);
    _mm512_i32scatter_epi32(shared + page * PAGE_WORDS, at, at, 4);
}

/* Through the upper registers, with a mask. */
__attribute__((noinline)) static void upper(void) {
    register __m512i at __asm__("zmm21") = _mm512_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240);
    register __m512i got __asm__("zmm22") = _mm512_setzero_si512();
    int *base = shared + page * PAGE_WORDS;
    __asm__ volatile("kmovw %k3, %%k3\n vpgatherdd (%2,%1,4), %0%{%%k3%}" : "+v"(got) : "v"(at), "r"(base), "r"(0x8421) : "k3", "memory");
    sum += _mm512_reduce_add_epi32(got);
}

int main(void) {
    begin();
    check("scatter", BYTES, scatter);
    check("masked gather", BYTES, upper);
    return 0;
}
