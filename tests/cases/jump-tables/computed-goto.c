//# flags: -O0 | -O1 | -O2 | -O3 | -Os
//# link: -pie | -no-pie | -pie -s
/* Labels as values: an interpreter with a table of label addresses, one with label differences, labels that leave a
 * function through a pointer kept in memory. */
#include "arena.h"

__attribute__((noinline)) uint64_t threaded(const unsigned char *code, int steps) {
    static const void *const table[] = {&&add, &&multiply, &&rotate, &&skip, &&not, &&call, &&loop, &&stop};
    uint64_t a = 1;
    int pc = 0;
#define NEXT                                  \
    do {                                      \
        if (--steps < 0) goto stop;           \
        goto *table[code[pc++ & 63] % 7];     \
    } while (0)
    NEXT;
add: a += 0x1234567; NEXT;
multiply: a *= 31; NEXT;
rotate: a = a << 9 | a >> 55; NEXT;
skip: pc += 2; NEXT;
not: a = ~a; NEXT;
call: mix(a); NEXT;
loop: pc += a & 7; NEXT;
stop:
    return a;
}

__attribute__((noinline)) uint64_t differences(const unsigned char *code, int steps) {
    static const int table[] = {&&zero - &&zero, &&one - &&zero, &&two - &&zero, &&three - &&zero, &&end - &&zero};
    uint64_t a = 7;
next:
    if (steps-- == 0)
        goto *(&&zero + table[4]);
    goto *(&&zero + table[code[steps & 63] & 3]);
zero: a += 3; goto next;
one: a ^= a << 7; goto next;
two: a -= 11; goto next;
three: a *= 5; goto next;
end:
    return a;
}

__attribute__((noinline)) uint64_t state(int n) {
    void *next = &&first;
    uint64_t a = 0;
again:
    if (n-- == 0)
        return a;
    goto *next;
first: a = a * 3 + 1; next = &&second; goto again;
second: a = a * 5 + 2; next = n % 3 ? &&third : &&first; goto again;
third: a ^= a >> 3; next = &&first; goto again;
}

int main(void) {
    unsigned char code[64];
    for (int i = 0; i < 64; i++)
        code[i] = (unsigned char)(i * 91 + 5);
    mix(threaded(code, 100000));
    mix(differences(code, 10000));
    mix(state(1000));
    report("computed goto");
    return 0;
}
