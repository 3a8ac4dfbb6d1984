//# compilers: gcc clang
//# flags: -O2
//# link: -pie | -no-pie -s
//# with: combos.S ../include/lab.S
//# shared: 2
/* Every base, index, scale and displacement form with all registers and flags live (combos.S). */
#include "arena.h"
#include "lab.h"

struct combo {
    void (*load)(void), (*store)(void), (*rmw)(void);
    unsigned char base, index, scale, pad;
    int32_t disp;
};
extern struct combo combos[];

/* Finds register values so that the operand's address is in the middle of the arena; returns that address. */
static uint64_t aim(const struct combo *c, uint64_t wanted, struct lab *in) {
    for (uint64_t at = wanted;; at++) {
        uint64_t rest = at - (int64_t)c->disp;
        if (c->index == 16) {
            in->r[c->base] = rest;
            return at;
        }
        if (c->base == c->index) {
            if (rest % (c->scale + 1u))
                continue;
            in->r[c->base] = rest / (c->scale + 1u);
            return at;
        }
        if (c->base == RSP || c->base == 16) {
            int64_t left = (int64_t)(rest - (c->base == RSP ? LAB_RSP : 0));
            if (left % c->scale)
                continue;
            in->r[c->index] = (uint64_t)(left / c->scale);
            return at;
        }
        in->r[c->index] = at * 3 % 100000 * 7 - 350000;
        in->r[c->base] = rest - in->r[c->index] * c->scale;
        return at;
    }
}

/* No memcpy: that may be a call of the C library, whose accesses to shared memory are not checked. */
typedef uint64_t anywhere __attribute__((aligned(1), may_alias));
static uint64_t peek(uint64_t at) { return *(volatile anywhere *)at; }
static void poke(uint64_t at, uint64_t value) { *(volatile anywhere *)at = value; }

static void check(const char *what, unsigned number, const struct lab *in, const struct lab *out, int changed) {
    for (int i = 0; i < 16; i++)
        EXPECT(i == changed || in->r[i] == out->r[i], "%s of combination %u changed register %d: %llx to %llx", what, number, i,
               (unsigned long long)in->r[i], (unsigned long long)out->r[i]);
}

int main(void) {
    arena_begin(16384);
    unsigned number = 0;
    for (const struct combo *c = combos; c->load; c++, number++) {
        struct lab in, out;
        uint64_t flags = number * 0x9e3779b1u >> 7 & STATUS;
        lab_fill(&in, number, flags);
        uint64_t at = aim(c, (uint64_t)ARENA + 4096 + number * 40 % 8192, &in);
        uint64_t value = 0xfeedface00000000u + number * 0x10001u, old = ~value * 3;

        poke(at, value);
        lab_run(c->load, &in, &out);
        EXPECT(out.r[R10] == value, "load of combination %u (base %u index %u) got %llx", number, c->base, c->index,
               (unsigned long long)out.r[R10]);
        EXPECT((out.flags & STATUS) == flags, "load of combination %u changed the flags", number);
        check("load", number, &in, &out, R10);

        lab_run(c->store, &in, &out);
        EXPECT(peek(at) == in.r[R11], "store of combination %u left %llx", number, (unsigned long long)peek(at));
        EXPECT((out.flags & STATUS) == flags, "store of combination %u changed the flags", number);
        check("store", number, &in, &out, -1);

        poke(at, old);
        lab_run(c->rmw, &in, &out);
        unsigned __int128 sum = (unsigned __int128)old + in.r[R11] + (flags & CF);
        EXPECT(peek(at) == (uint64_t)sum, "adc of combination %u left %llx", number, (unsigned long long)peek(at));
        EXPECT((out.flags & CF) == (uint64_t)(sum >> 64), "adc of combination %u: wrong carry", number);
        EXPECT(!(out.flags & ZF) == ((uint64_t)sum != 0), "adc of combination %u: wrong zero flag", number);
        EXPECT(!(out.flags & SF) == !((uint64_t)sum >> 63), "adc of combination %u: wrong sign flag", number);
        check("adc", number, &in, &out, -1);
    }
    printf("%u combinations\n", number);
    return case_result();
}
