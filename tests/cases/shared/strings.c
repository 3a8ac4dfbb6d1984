//# flags: -O2
//# link: -pie | -no-pie -s
//# nodes: 2 3
/* String instructions over many blocks that other nodes write in turn: copies, fills, compares and scans with misses in the middle, in
 * both directions; each node passes a buffer on to the next. */
#include <blizzard.h>
#include <stdio.h>

enum { BYTES = 2000 };

static void copy(unsigned char *to, const unsigned char *from, uint64_t n) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}
static void copy_back(unsigned char *to, const unsigned char *from, uint64_t n) {
    to += n - 8, from += n - 8, n /= 8;
    __asm__ volatile("std\n rep movsq\n cld" : "+D"(to), "+S"(from), "+c"(n) : : "memory", "cc");
}
static void fill(unsigned char *to, unsigned value, uint64_t n) {
    n /= 4;
    __asm__ volatile("rep stosl" : "+D"(to), "+c"(n) : "a"(value * 0x01010101u) : "memory");
}
static uint64_t same(const unsigned char *a, const unsigned char *b, uint64_t n) {
    uint64_t left = n;
    __asm__ volatile("cmp %%rcx, %%rcx\n repe cmpsb" : "+D"(a), "+S"(b), "+c"(left) : : "memory", "cc");
    return n - left;
}
static uint64_t find(const unsigned char *a, unsigned char what, uint64_t n) {
    uint64_t left = n;
    __asm__ volatile("repne scasb" : "+D"(a), "+c"(left) : "a"(what) : "memory", "cc");
    return n - left;
}

int main(void) {
    unsigned me = bz_node(), nodes = bz_nodes();
    unsigned char *base = me == 0 ? bz_alloc(8192 * nodes + 64) : 0;
    if (me == 0)
        bz_publish(0, base);
    base = bz_lookup(0);
    unsigned char *mine = base + 8192 * me + 13, *next = base + 8192 * ((me + 1) % nodes) + 13;
    uint64_t wrong = 0;
    for (unsigned round = 0; round < 60; round++) {
        fill(mine, me + round, BYTES);
        for (unsigned i = 0; i < BYTES; i += 50)
            mine[i] = (unsigned char)(i + round);
        bz_barrier();
        unsigned char private_copy[BYTES];
        copy(private_copy, next, BYTES);
        for (unsigned i = 0; i < BYTES; i++)
            wrong += private_copy[i] != (unsigned char)(i % 50 ? (me + 1) % nodes + round : i + round);
        wrong += same(private_copy, next, BYTES) != BYTES;
        private_copy[1234] ^= 1;
        wrong += same(next, private_copy, BYTES) != 1235;
        bz_barrier();
        copy_back(mine + 3000, next, BYTES);
        copy(mine + 3011, mine + 3000, BYTES);
        bz_barrier();
        mine[3000 + BYTES - 1] = 0xee;
        wrong += find(next + 3011, (unsigned char)((me + 2) % nodes + round), BYTES) == 0;
        bz_barrier();
    }
    wrong = bz_reduce_sum_u64(wrong);
    if (me == 0)
        printf("%llu wrong\n", (unsigned long long)wrong);
    return wrong != 0;
}
