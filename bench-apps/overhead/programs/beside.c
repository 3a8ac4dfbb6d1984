/* What a check costs beside a block that may not be accessed.
 *
 *     gcc -O2 $(blizzard config --cflags) beside.c $(blizzard config --libs) -o beside && blizzard run -n 2 -- ./beside
 *
 * A check of more than one byte looks at two tags, and its cold stub decides. Node 1 reads words of a block of node 0 that it has, again and
 * again: once the block behind it is there, too, and once not. Printed are nanoseconds per iteration, the least of many repetitions in
 * turn, for a loop whose check has registers and flags to itself, so that its stub returns without the runtime, and for one in which flags are
 * live, whose stub calls the runtime.
 */
#include <blizzard.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { WORDS = 512, BLOCK = 8, REPETITIONS = 60 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * t.tv_sec + t.tv_nsec;
}

static uint64_t plain(const volatile uint64_t *p, uint64_t rounds)
{
    uint64_t sum = 0;

    for (uint64_t k = 0; k < rounds; k++)
        sum += p[k * k & (BLOCK - 1)];
    return sum;
}

/* The carry is live over the load and over the jump back. */
static uint64_t with_flags(const volatile uint64_t *p, uint64_t rounds)
{
    uint64_t sum = 0;

    __asm__ volatile("test %%eax, %%eax\n"
                     "1: adc (%[p]), %[sum]\n"
                     "lea -1(%%rcx), %%rcx\n"
                     "jrcxz 2f\n"
                     "jmp 1b\n"
                     "2:"
                     : [sum] "+r"(sum), "+c"(rounds)
                     : [p] "r"(p)
                     : "cc", "memory");
    return sum;
}

int main(void)
{
    static uint64_t (*const loops[])(const volatile uint64_t *, uint64_t) = {plain, with_flags};
    static const uint64_t rounds[] = {100000, 10000};
    static const char *const names[] = {"registers and flags free", "flags live"};
    uint64_t *page = NULL;

    if (bz_node() == 0) {
        page = bz_alloc_on(0, 2 * WORDS * sizeof *page);
        memset(page, 1, 2 * WORDS * sizeof *page);
        bz_publish(0, page);
    }
    page = bz_lookup(0);
    bz_barrier();
    if (bz_node() == 1) {
        const volatile uint64_t *both = page, *alone = page + WORDS;
        uint64_t sum = both[0] + both[BLOCK] + alone[0];

        for (int k = 0; k < 2; k++) {
            double least[2] = {1e18, 1e18};

            for (int r = 0; r < 2 * REPETITIONS; r++) {
                double begin = now();

                sum += loops[k](r % 2 ? alone : both, rounds[k]);
                double each = (now() - begin) / rounds[k];
                if (each < least[r % 2])
                    least[r % 2] = each;
            }
            printf("%s: %.2f ns, beside an invalid block %.2f ns\n", names[k], least[0], least[1]);
        }
        if (sum == 0)
            return 1;
    }
    bz_barrier();
    return 0;
}
