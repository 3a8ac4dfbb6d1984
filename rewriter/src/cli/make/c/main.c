/* @NAME@: how many primes there are below a million, counted by all nodes of the run. */
#include <blizzard.h>
#include <stdio.h>

#define LIMIT 1000000u

static int is_prime(unsigned n) {
    if (n < 2) return 0;
    for (unsigned d = 2; d * d <= n; d++)
        if (n % d == 0) return 0;
    return 1;
}

/* main runs on every node. Without Blizzard there is one. */
int main(void) {
    unsigned me = bz_node(), n = bz_nodes();

    /* Node 0 makes one shared counter for each node, and tells the others where. Shared memory starts as zeros. */
    if (me == 0) bz_publish(0, bz_alloc(n * sizeof(unsigned)));
    unsigned *counts = bz_lookup(0);
    if (counts == NULL) {
        fprintf(stderr, "out of shared memory\n");
        return 1;
    }

    unsigned found = 0;
    for (unsigned k = me; k < LIMIT; k += n) found += is_prime(k);
    counts[me] = found;

    bz_barrier();
    if (me == 0) {
        unsigned sum = 0;
        for (unsigned k = 0; k < n; k++) sum += counts[k];
        printf("%u primes below %u\n", sum, LIMIT);
    }
    return 0;
}
