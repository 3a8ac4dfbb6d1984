//# compilers: gcc
//# flags: -O2 -fipa-ra | -O3 -fipa-ra | -O1 -fipa-ra
//# link: -pie | -no-pie | -pie -s
//# with: ipa_ra_conventions.S
/* gcc keeps values in caller-saved registers over calls of local functions that do not clobber them: inserted code in the callee
 * must not either. And local functions of hand-written assembly that return in rcx, in the carry flag, or clobber nothing. */
#include "arena.h"

__attribute__((noinline)) static void touch(int *p) { *p = *p * 3 + 1; }
__attribute__((noinline)) static int look(const int *p) { return p[3] + 1; }
__attribute__((noinline)) static void exchange(uint64_t *p, uint64_t *q) { uint64_t t = *p; *p = *q; *q = t; }

__attribute__((noinline)) static uint64_t caller(int *p, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    uint64_t f = a * b, g = c + d, h = a ^ e, i = b - c;
    touch(p);
    f += a, g ^= b;
    touch(p + 1);
    h += c, i -= d;
    f += (uint64_t)look(p);
    uint64_t x = f + g, y = h;
    exchange(&x, &y);
    touch(p + 2);
    return a + b * 3 + c * 5 + d * 7 + e * 11 + f * 13 + g * 17 + h * 19 + i * 23 + x * 29 + y * 31;
}
extern uint64_t uses_conventions(uint64_t *data, uint64_t n);

int main(void) {
    int values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (uint64_t n = 0; n < 100; n++)
        mix(caller(values + n % 4, n, n + 1, n * 2, n ^ 9, ~n));
    mix_bytes(values, sizeof values);
    uint64_t data[64];
    for (uint64_t n = 0; n < 64; n++)
        data[n] = n * 0x9e3779b97f4a7c15u;
    for (uint64_t n = 1; n < 60; n++)
        mix(uses_conventions(data, n));
    mix_bytes(data, sizeof data);
    report("conventions");
    return 0;
}
