/* What node 0 has allocated and written before it creates the others, in arenas of all block sizes and kinds of homes, is where the others find it; homes on nodes
 * that do not exist yet are those of node 0. */
#include <blizzard.h>
#include <stdio.h>

enum { KINDS = 32, WORDS = 600 };
static uint64_t *memory[KINDS];
static uint64_t *sums;

static uint64_t sum(unsigned from) {
    uint64_t s = 0;
    for (unsigned k = 0; k < KINDS; k++)
        for (unsigned w = from; w < WORDS; w++)
            s += memory[k][w] * (k + 1);
    return s;
}

static void work(void) {
    unsigned me = bz_node();
    sums[me] = sum(0);
    bz_barrier();
    for (unsigned k = 0; k < KINDS; k++)
        for (unsigned w = me; w < WORDS; w += 3)
            memory[k][w] += me + 1;
    bz_barrier();
    sums[me + 3] = sum(0);
}

int main(void) {
    for (unsigned k = 0; k < KINDS; k++) {
        bz_attr_t a = {k % 8 ? 32u << k % 8 : 0, k / 8, k % 3, (k + k / 8) % 4};
        memory[k] = bz_alloc_with(&a, WORDS * 8);
        for (unsigned w = 0; w < WORDS; w++)
            memory[k][w] = k * 1000 + w;
    }
    sums = bz_alloc(6 * 8);
    uint64_t before = sum(0);
    bz_create(work);
    bz_create(work);
    work();
    bz_wait_for_end(2);
    for (int n = 0; n < 6; n++)
        printf("%s%llu", n ? " " : "", (unsigned long long)(sums[n] - before));
    printf("\n");
    return 0;
}
