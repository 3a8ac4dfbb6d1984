//# flags: -O0 | -O2 -fno-pie | -O2 -fPIE
//# link: -no-pie | -no-pie -s
/* A switch with 2000 different cases, and one of 700 in a loop. */
#include "arena.h"

#define W1(n) case n: a = a * (2 * (n) + 3) + b[n & 15]; break;
#define W10(n) W1(n) W1(n + 1) W1(n + 2) W1(n + 3) W1(n + 4) W1(n + 5) W1(n + 6) W1(n + 7) W1(n + 8) W1(n + 9)
#define W100(n) W10(n) W10(n + 10) W10(n + 20) W10(n + 30) W10(n + 40) W10(n + 50) W10(n + 60) W10(n + 70) W10(n + 80) W10(n + 90)
#define W1000(n) W100(n) W100(n + 100) W100(n + 200) W100(n + 300) W100(n + 400) W100(n + 500) W100(n + 600) W100(n + 700) \
    W100(n + 800) W100(n + 900)

static uint64_t b[16];

__attribute__((noinline)) uint64_t two_thousand(unsigned x, uint64_t a) {
    switch (x) { W1000(0) W1000(1000) }
    return a;
}

__attribute__((noinline)) uint64_t in_a_loop(uint64_t a, int steps) {
    while (steps--)
        switch (a % 800) {
            W100(0) W100(100) W100(200) W100(300) W100(400) W100(500) W100(600)
        default: a += 1234567;
        }
    return a;
}

int main(void) {
    for (int i = 0; i < 16; i++)
        b[i] = (uint64_t)i * 0x12345;
    for (unsigned i = 0; i < 2100; i++)
        mix(two_thousand(i, i));
    mix(in_a_loop(17, 100000));
    report("2000 cases");
    return 0;
}
