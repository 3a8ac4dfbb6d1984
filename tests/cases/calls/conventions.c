//# compilers: clang
//# flags: -O0 -DCONVENTION=ms_abi | -O1 -DCONVENTION=ms_abi | -O2 -DCONVENTION=ms_abi | -O3 -DCONVENTION=preserve_most | -O1 -DCONVENTION=preserve_most | -O2 -DCONVENTION=preserve_all | -O3 -DCONVENTION=preserve_all | -Os -DCONVENTION=preserve_most
//# link: -pie | -no-pie -s
/* Functions of another convention than the ABI's, called through pointers: their callers keep values in registers that a function of the ABI may change, and
 * the functions' checks used these. (They return nothing: some releases of clang lose what a `preserve_most` function returns.) */
#include "arena.h"

#define FUNCTION __attribute__((CONVENTION, noinline)) static void
FUNCTION first(uint64_t *to, uint64_t i) { *to = to[1 + (i & 7)] + 1; }
FUNCTION second(uint64_t *to, uint64_t i) {
    to[1 + (i & 7)] ^= i;
    *to = to[1 + ((i + 1) & 7)];
}
FUNCTION third(uint64_t *to, uint64_t i) { *to = to[1 + (i & 7)] * to[1 + ((i + 3) & 7)]; }
static void (*volatile table[3])(uint64_t *, uint64_t) __attribute__((CONVENTION)) = {first, second, third};

__attribute__((noinline)) static uint64_t sum(uint64_t *memory, uint64_t n, uint64_t factor, uint64_t more) {
    uint64_t s = 0;
    for (uint64_t i = 0; i < n; i++) {
        table[i % 3](memory, i);
        s += *memory * factor + more;
        s ^= s >> 7;
    }
    return s;
}

__attribute__((noinline)) static uint64_t two(uint64_t *memory, uint64_t i) {
    table[i & 1](memory, i);
    uint64_t s = *memory ^ i;
    table[2](memory, i);
    return s + *memory * i;
}

int main(void) {
    uint64_t *memory = malloc(9 * sizeof *memory);
    for (uint64_t i = 0; i < 9; i++) {
        memory[i] = i * 77;
    }
    for (uint64_t n = 0; n < 50; n++) {
        mix(sum(memory, n, 3, 5) + two(memory, n));
    }
    report("conventions");
    return 0;
}
