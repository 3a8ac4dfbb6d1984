//# compilers: gcc
//# flags: -O2 -mindirect-branch=thunk | -O2 -mindirect-branch=thunk-inline | -O1 -mindirect-branch=thunk -mindirect-branch-register -mfunction-return=thunk | -O2 -mindirect-branch=thunk-inline -mfunction-return=thunk-inline
//# link: -pie | -no-pie -s
/* Indirect calls and jumps that are returns to an address put on the stack. What the callee is passed is live at such a return; taken
 * for an ordinary one, checks before the call may take the argument registers for scratch. */
#include "arena.h"

typedef uint64_t (*operation)(uint64_t *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
static uint64_t add(uint64_t *p, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) { return *p += a + b + c + d + e; }
static uint64_t multiply(uint64_t *p, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    return *p = *p * 31 + a * b + c * d + e;
}
operation table[2] = {add, multiply};

__attribute__((noinline)) static uint64_t tail(uint64_t *p, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    return table[p[1]++ & 1](p, a + 1, b, c, d, e);
}
__attribute__((noinline)) static uint64_t computed(uint64_t n) {
    static void *const labels[] = {&&zero, &&one, &&two};
    goto *labels[n % 3];
zero:
    n += 3;
one:
    n *= 5;
two:
    return n;
}

int main(void) {
    uint64_t *memory = malloc(64);
    memset(memory, 0, 64);
    for (uint64_t n = 0; n < 1000; n++) {
        uint64_t *p = memory + n % 3;
        mix(table[n & 1](p, n, memory[0], memory[2], n * 3, memory[1] & 7));
        mix(tail(memory, n, memory[2], memory[1], n * 7, *p) + computed(n));
    }
    report("retpolines");
    return 0;
}
