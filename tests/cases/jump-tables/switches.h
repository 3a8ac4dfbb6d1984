#include "arena.h"

#define C1(n) case n: return (n) * 31 + x;
#define C4(n) C1(n) C1((n) + 1) C1((n) + 2) C1((n) + 3)
#define C16(n) C4(n) C4((n) + 4) C4((n) + 8) C4((n) + 12)
#define C64(n) C16(n) C16((n) + 16) C16((n) + 32) C16((n) + 48)
#define NOINLINE __attribute__((noinline))

/* Different work per case, so that no compiler turns the switch into a table of values. */
#define W(n, code) case n: code; break;

NOINLINE int three(int x) {
    switch (x) {
    case 0: return puts("zero") + 1;
    case 1: return puts("one") * 7;
    case 2: return putchar('2');
    }
    return -1;
}

NOINLINE uint64_t six(unsigned x, uint64_t a) {
    switch (x) {
        W(0, a += 5) W(1, a ^= a >> 3) W(2, a *= 7) W(3, a = ~a) W(4, a = a << 5 | a >> 59) W(5, mix(a))
    }
    return a;
}

NOINLINE uint64_t holes(int x, uint64_t a) {
    switch (x) {
        W(3, a += 1) W(4, a ^= 77) W(6, a *= 3) W(7, a -= 9) W(9, a = -a) W(12, mix(a)) W(13, a = a << 1 | a >> 63) W(17, a |= 1)
        W(18, a &= ~2ull) W(21, a += a >> 7)
    default: a += 1000;
    }
    return a;
}

NOINLINE uint64_t negative(int x, uint64_t a) {
    switch (x) {
        W(-5, a += 1) W(-4, a ^= 77) W(-3, a *= 3) W(-2, a -= 9) W(-1, a = -a) W(0, mix(a)) W(1, a = a << 1 | a >> 63) W(2, a |= 1)
    }
    return a;
}

NOINLINE uint64_t wide(uint64_t x, uint64_t a) {
    switch (x) {
        W(0x100000000, a += 1) W(0x100000001, a ^= 77) W(0x100000002, a *= 3) W(0x100000003, a -= 9) W(0x100000004, a = -a)
        W(0x100000005, mix(a)) W(0x100000006, a |= 1)
    default: a ^= x;
    }
    return a;
}

NOINLINE uint64_t bytes(unsigned char x, uint64_t a) {
    switch (x) {
        W(0, a += 1) W(1, a ^= 77) W(2, a *= 3) W(3, a -= 9) W(4, a = -a) W(5, mix(a)) W(6, a |= 1) W(255, a += 3) W(254, a ^= 5)
        W(253, a -= 1) W(252, a *= 5)
    }
    return a;
}

/* Every value of the selector's type or mask has a case: no bounds check is left in the code. */
NOINLINE uint64_t masked(unsigned x, uint64_t a) {
    switch (x & 7) {
        W(0, a += 5) W(1, a ^= a >> 3) W(2, a *= 7) W(3, a = ~a) W(4, a = a << 5 | a >> 59) W(5, mix(a)) W(6, a -= 11) W(7, a |= 4)
    }
    return a;
}

NOINLINE uint64_t unreachable(unsigned x, uint64_t a) {
    switch (x) {
        W(0, a += 5) W(1, a ^= a >> 3) W(2, a *= 7) W(3, a = ~a) W(4, a = a << 5 | a >> 59) W(5, mix(a)) W(6, a -= 11)
    default: __builtin_unreachable();
    }
    return a;
}

NOINLINE uint64_t sparse(int x, uint64_t a) {
    switch (x) {
        W(1, a += 5) W(100, a ^= a >> 3) W(1000, a *= 7) W(5000, a = ~a) W(5001, a -= 3) W(5002, a ^= 9) W(5003, a += 8)
        W(5004, mix(a)) W(5005, a *= 3) W(70000, a |= 4) W(-70000, a ^= 8)
    }
    return a;
}

NOINLINE uint64_t nested(int x, int y, uint64_t a) {
    switch (x) {
        W(0, a += 1) W(1, a ^= 2) W(2, a *= 3)
    case 3:
        switch (y) {
            W(0, a += 10) W(1, a ^= 20) W(2, a *= 30) W(3, a -= 40) W(4, mix(a)) W(5, a = ~a) W(6, a |= 64)
        default: a += 7;
        }
        break;
        W(4, a -= 5) W(5, a = ~a) W(6, mix(a + 1))
    }
    return a;
}

NOINLINE uint64_t machine(const unsigned char *code, int steps) {
    uint64_t stack[16] = {0}, a = 1;
    int top = 0, pc = 0;
    while (steps-- > 0) {
        switch (code[pc++ & 63] % 13) {
        case 0: stack[top++ & 15] = a; break;
        case 1: a += stack[--top & 15]; break;
        case 2: a *= 3; break;
        case 3: if (a & 1) pc += 2; break;
        case 4: a ^= a >> 11; continue;
        case 5: pc -= 3; a += 17; break;
        case 6: a = ~a; break;
        case 7: stack[top & 15] += a; /* falls through */
        case 8: a -= 7; break;
        case 9: a = a << 3 | a >> 61; break;
        case 10: if (a % 3 == 0) goto out; break;
        case 11: mix(a); break;
        default: a += (uint64_t)top;
        }
    }
out:
    return a;
}

NOINLINE int big(int x) {
    switch (x) {
        C64(0) C64(64) C64(128) C64(192) C16(256)
    }
    return 5;
}

/* A switch in a function that takes part in a tail call, and one whose cases call each other. */
NOINLINE int even(unsigned n);
NOINLINE int odd(unsigned n) { return n == 0 ? 0 : even(n - 1); }
NOINLINE int even(unsigned n) {
    switch (n % 5) {
    case 0: return n == 0 ? 1 : odd(n - 1);
    case 1: mix(n); return odd(n - 1);
    case 2: mix(n * 3); return !even(n - 1);
    case 3: return odd(n - 1);
    default: mix(n ^ 5); return odd(n - 1);
    }
}

NOINLINE const char *name(int x) {
    switch (x) {
    case 0: return "nought"; case 1: return "one"; case 2: return "two"; case 3: return "three"; case 4: return "four";
    case 5: return "five"; case 6: return "six"; case 7: return "seven"; case 8: return "eight";
    }
    return "many";
}

int main(void) {
    uint64_t a = 12345;
    unsigned char code[64];
    for (int i = -2; i < 4; i++)
        mix(three(i));
    for (int i = -30; i < 60; i++) {
        a = six((unsigned)i, a), mix(a);
        a = holes(i, a), mix(a);
        a = negative(i, a), mix(a);
        a = wide(0x100000000u + (uint64_t)(int64_t)i, a), mix(a);
        a = bytes((unsigned char)i, a), mix(a);
        a = masked((unsigned)i, a), mix(a);
        a = unreachable((unsigned)(i + 30) % 7, a), mix(a);
        a = sparse(i * 100, a), a = sparse(5000 + i, a), a = sparse(i * 1000, a), mix(a);
        a = nested(i % 8, i % 9, a), mix(a);
        mix((uint64_t)even((unsigned)(i + 40)));
        fputs(name(i), stdout);
    }
    for (int i = 0; i < 64; i++)
        code[i] = (unsigned char)(i * 57 + 11);
    mix(machine(code, 20000));
    for (int i = -3; i < 300; i++)
        mix((uint64_t)big(i));
    putchar('\n');
    report("switches " KIND);
    return 0;
}
