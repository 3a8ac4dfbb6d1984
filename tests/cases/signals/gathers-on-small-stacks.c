//# flags: -O2 -mavx2
//# link: -pie | -static
//# compilers: gcc
//# needs-cpu: avx2
//# nodes: 2
//# guarded-nodes: 2 3
/* Gathers of shared memory on coroutines' stacks: what lies below stays. In guarded code they are carried out at a signal, whose frame and handler took 5 KiB of the stack. */
#include "small_stack.h"
#include <immintrin.h>

enum { BYTES = 2048 };
static int private[8] = {1, 2, 3, 4};

__attribute__((noinline)) static void gather(void) {
    __m256i at = _mm256_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112);
    __m256i got = _mm256_i32gather_epi32(shared + page * PAGE_WORDS, at, 4);
    sum += _mm256_extract_epi32(got, 7);
}

/* Two lanes in private memory. */
__attribute__((noinline)) static void mixed(void) {
    int *base = shared + page * PAGE_WORDS;
    long apart = ((intptr_t)private - (intptr_t)base) / 4;
    __m128i got = _mm256_i64gather_epi32(base, _mm256_setr_epi64x(0, 16, apart, apart + 3), 4);
    sum += _mm_extract_epi32(got, 1) + _mm_extract_epi32(got, 3);
}

int main(void) {
    begin();
    check("gather", BYTES, gather);
    check("gather of private memory, too", BYTES, mixed);
    return 0;
}
