//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
/* A function of several hundred kilobytes: displacements beyond 8 bits everywhere, long jump distances. */
#include "arena.h"
#define S1(n) a[(n) & 63] = a[(n) + 5 & 63] * 3 + a[(n) + 9 & 63] + (n); if (a[(n) & 63] % 17 == 3) goto out;
#define S10(n) S1(n) S1(n + 1) S1(n + 2) S1(n + 3) S1(n + 4) S1(n + 5) S1(n + 6) S1(n + 7) S1(n + 8) S1(n + 9)
#define S100(n) S10(n) S10(n + 10) S10(n + 20) S10(n + 30) S10(n + 40) S10(n + 50) S10(n + 60) S10(n + 70) S10(n + 80) S10(n + 90)
#define S1000(n) S100(n) S100(n + 100) S100(n + 200) S100(n + 300) S100(n + 400) S100(n + 500) S100(n + 600) S100(n + 700) S100(n + 800) S100(n + 900)
__attribute__((noinline)) static uint64_t long_one(volatile uint64_t *a, int rounds) {
    uint64_t count = 0;
again:
    S1000(0) S1000(1000) S1000(2000) S1000(3000)
out:
    count++;
    a[count & 63] += count;
    if (rounds-- > 0)
        goto again;
    return count + a[7];
}
int main(void) {
    volatile uint64_t a[64];
    for (int i = 0; i < 64; i++)
        a[i] = (uint64_t)i * 99;
    mix(long_one(a, 3000));
    mix_bytes((void *)a, sizeof a);
    report("large function");
    return 0;
}
