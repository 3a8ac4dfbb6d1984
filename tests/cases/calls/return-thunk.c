//# compilers: gcc
//# flags: -O2 -mfunction-return=thunk | -O2 -mfunction-return=thunk-inline | -O2 -mfunction-return=thunk -fno-ipa-ra
//# link: -pie | -no-pie -s
/* Functions end in jumps to a thunk that calls the next few instructions and takes the return address of that call off the stack. Its
 * return leads to whoever called the function; taken for the end of that call, nothing of what the function returns was live
 * at the jump, and a check between the result and the jump used its register. */
#include "arena.h"

__attribute__((noinline)) static uint64_t exchange(uint64_t *p, uint64_t i, uint64_t *q, uint64_t k, uint64_t value) {
    uint64_t old = p[i];
    q[k] = value;
    return old;
}
__attribute__((noinline)) static uint64_t halves(uint64_t *p, uint64_t i, uint64_t n) {
    uint64_t both = p[i] * n;
    p[i + 8] = n;
    p[n & 7] += i;
    return both;
}

int main(void) {
    uint64_t *memory = malloc(256);
    memset(memory, 1, 256);
    uint64_t a = 1, b = 2, c = 3;
    for (uint64_t n = 0; n < 1000; n++) {
        a = a * 3 + exchange(memory, n & 15, memory + 16, n & 7, n * 7 + b);
        b ^= halves(memory, n & 7, n) + a;
        c += exchange(memory + 16, n & 7, memory, n & 15, c) ^ n;
        mix(a + b + c);
    }
    report("return thunks");
    return 0;
}
