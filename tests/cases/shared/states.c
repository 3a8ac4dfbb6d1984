//# flags: -O2
//# link: -pie | -no-pie -s
//# nodes: 2 3
/* Large states to shared memory that other nodes touch: fxsave, fnsave, environment and 80-bit values, structures copied by value,
 * 16-byte vectors across blocks. */
#include <blizzard.h>
#include <stdio.h>

struct big { uint64_t v[50]; };
typedef double vector __attribute__((vector_size(16), aligned(1)));

__attribute__((noinline)) static struct big next(struct big b) {
    for (int i = 0; i < 50; i++)
        b.v[i] = b.v[i] * 3 + 1;
    return b;
}

int main(void) {
    unsigned me = bz_node(), nodes = bz_nodes();
    unsigned char *base = me == 0 ? bz_alloc(32768) : 0;
    if (me == 0)
        bz_publish(0, base);
    base = bz_lookup(0);
    struct big *big = (struct big *)(base + 40);
    unsigned char *area = base + 8192 + 1024 * me;
    long double *extended = (long double *)(base + 16384 + 58);
    vector *vectors = (vector *)(base + 20480 + 56);
    volatile uint64_t *touch = (uint64_t *)(base + 8192);
    uint64_t wrong = 0;
    for (unsigned round = 0; round < 40 * nodes; round++) {
        if (round % nodes == me) {
            struct big copy = next(*big);
            *big = copy;
            extended[0] = extended[0] * 2 + round;
            for (int i = 0; i < 20; i++)
                vectors[i] = vectors[i] * 0.5 + (double)round;
        } else
            for (int i = 0; i < 3; i++)
                touch[128 * me + (round * 7 + i * 8) % 64] += 0;
        uint64_t before = 0x1234567890abcdef ^ round, after = 0;
        // The area's address in a register: an operand that the compiler words itself may have a displacement already.
        __asm__ volatile("movq %1, %%xmm5\n fldpi\n fxsave (%2)\n pxor %%xmm5, %%xmm5\n ffree %%st(0)\n fxrstor (%2)\n"
                         "movq %%xmm5, %0\n fstp %%st(0)\n fnsave 512(%2)\n frstor 512(%2)\n fnstenv 640(%2)\n"
                         "fldenv 640(%2)\n"
                         : "=&r"(after)
                         : "r"(before), "r"(area)
                         : "xmm5", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)", "memory");
        wrong += after != before;
        bz_barrier();
    }
    uint64_t expected = 0;
    long double extended_expected = 0;
    double vector_expected = 0;
    for (unsigned round = 0; round < 40 * nodes; round++) {
        expected = expected * 3 + 1;
        extended_expected = extended_expected * 2 + round;
        vector_expected = vector_expected * 0.5 + round;
    }
    for (int i = 0; i < 50; i++)
        wrong += big->v[i] != expected;
    wrong += extended[0] != extended_expected;
    for (int i = 0; i < 20; i++)
        wrong += vectors[i][0] != vector_expected || vectors[i][1] != vector_expected;
    bz_barrier();
    wrong = bz_reduce_sum_u64(wrong);
    if (me == 0)
        printf("%llu wrong\n", (unsigned long long)wrong);
    return wrong != 0;
}
