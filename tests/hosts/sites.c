/* Places that allocate, on several hosts: each node has an array, which its neighbour reads; one place allocates only where it is told to. With an argument the
 * last node reads at a place of its own. */
#include <blizzard.h>
#include <stdio.h>

enum { WORDS = 8192 };

__attribute__((noinline)) static long *own(void) {
    long *array = bz_alloc_on(bz_node(), WORDS * sizeof(long));
    array[0] = bz_node();
    return array;
}

__attribute__((noinline)) static void *never(void) {
    return bz_alloc(64);
}

__attribute__((noinline)) static long read_at_last(const volatile long *other) {
    long sum = 0;
    for (int k = WORDS; k-- > 0;)
        sum += other[k];
    return sum;
}

int main(int argc, char **argv) {
    unsigned me = bz_node(), n = bz_nodes();
    (void)argv;
    bz_publish(me, argc > 9 ? never() : own());
    volatile long *other = bz_lookup((me + 1) % n);
    long sum = 0;
    if (argc > 1 && me == n - 1)
        sum = read_at_last(other);
    else
        for (int k = 0; k < WORDS; k++)
            sum += other[k];
    bz_barrier();
    printf("node %u: %ld\n", me, sum);
    return 0;
}
