// @NAME@: how many primes there are below a million, counted by all nodes of the run.
#include <blizzard.h>
#include <iostream>
#include <numeric>

constexpr unsigned limit = 1'000'000;

static bool is_prime(unsigned n) {
    if (n < 2) return false;
    for (unsigned d = 2; d * d <= n; d++)
        if (n % d == 0) return false;
    return true;
}

// main runs on every node. Without Blizzard there is one.
int main() {
    unsigned me = bz_node(), n = bz_nodes();

    // Node 0 makes one shared counter for each node, and tells the others where. Shared memory starts as zeros.
    if (me == 0) bz_publish(0, bz_alloc(n * sizeof(unsigned)));
    auto *counts = static_cast<unsigned *>(bz_lookup(0));
    if (counts == nullptr) {
        std::cerr << "out of shared memory\n";
        return 1;
    }

    unsigned found = 0;
    for (unsigned k = me; k < limit; k += n) found += is_prime(k);
    counts[me] = found;

    bz_barrier();
    if (me == 0) std::cout << std::accumulate(counts, counts + n, 0u) << " primes below " << limit << '\n';
    return 0;
}
