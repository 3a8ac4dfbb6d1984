//# compilers: gcc
//# flags: -O2 -mcmodel=large -fpie | -O2 -mcmodel=large -fno-pie | -O3 -mcmodel=large -fno-pie | -O2 -mforce-indirect-call -fno-pie | -O2 -mforce-indirect-call -fpie | -O3 -mforce-indirect-call -fno-pie
//# link: -no-pie | -no-pie -s
/* In the large code model, or when told to, gcc calls a function of the same file through a register that holds its address, and keeps values over the call in
 * whatever registers the function leaves alone. Taken for a call of something unknown, the function's checks used them. */
#include "arena.h"

__attribute__((noinline)) static uint64_t choose(uint64_t x, uint64_t y) {
    switch (x) {
    case 0: return y + 1;
    case 1: return y * 3;
    case 2: return y - 5;
    case 3: return y ^ 7;
    case 4: return y / 3;
    case 5: return y | 9;
    case 6: return y & 12;
    case 7: return y << 2;
    default: return 0;
    }
}
__attribute__((noinline)) static uint64_t at(const uint64_t *p, uint64_t i) { return p[i] + p[i + 3]; }
__attribute__((noinline)) static uint64_t step(uint64_t *p, uint64_t i, uint64_t n) {
    p[i + 1] += n;
    return at(p, i);
}

__attribute__((noinline)) static uint64_t many(uint64_t *p, uint64_t n) {
    uint64_t a = 1, b = 2, c = 3;
    for (uint64_t i = 0; i < n; i++) {
        a += choose(i % 10, a);
        b ^= at(p, i & 7) + a;
        c = c * 3 + step(p, i & 7, b);
    }
    return a ^ b ^ c;
}

__attribute__((noinline)) static uint64_t sum(uint64_t n) {
    uint64_t s = 0;
    for (uint64_t i = 0; i < n; i++) {
        s += choose(i % 10, i);
    }
    return s;
}

int main(void) {
    uint64_t *memory = malloc(256);
    memset(memory, 1, 256);
    for (uint64_t n = 0; n < 100; n++) {
        mix(many(memory, n) + sum(n));
    }
    report("large model");
    return 0;
}
