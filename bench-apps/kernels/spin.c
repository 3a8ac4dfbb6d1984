/* Own synchronisation: nodes meet at a barrier that is made of a counter and a word in shared memory, on which they spin.
 *
 * Between two barriers each node adds to its own block and reads its neighbour's. Programs that were written for threads are often so.
 * Source: Mellor-Crummey and Scott, "Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors" (1991), algorithm 7.
 */
#include "kernel.h"

struct block {
    uint64_t word[8];
};

int main(int argc, char **argv) {
    const uint64_t rounds = kernel_size(argc, argv, 4000, 1, 1 << 24);
    struct block *shared = shared_by(0, 0, (nodes + 2) * sizeof *shared);
    uint64_t *arrived = shared[nodes].word, *sense = shared[nodes + 1].word, value = me;

    measure();
    for (uint64_t round = 1; round <= rounds; round++) {
        shared[me].word[round % 2] = round + mix(round);
        if (__atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL) == nodes) {
            __atomic_store_n(arrived, 0, __ATOMIC_RELAXED);
            __atomic_store_n(sense, round, __ATOMIC_RELEASE);
        } else {
            while (__atomic_load_n(sense, __ATOMIC_ACQUIRE) != round)
                __builtin_ia32_pause();
        }
        value = mix(shared[(me + 1) % nodes].word[round % 2]);
    }
    measured("spin");
    /* All have read the same last value. */
    return finish("spin", me == 0 ? value : 0);
}
