//# flags: -O0 | -O2 | -O3
//# link: -pie | -static
//# nodes: 2 3
/* Compilers turn loops and assignments of structures into calls of memset, memcpy and memmove. Given shared memory that another node has just
 * written, these have to fetch it like any code of the program. */
#include <blizzard.h>
#include <stdio.h>

struct middle {
    char bytes[400];
};
struct large {
    char bytes[70000];
};
enum { COUNT = 20000 };

__attribute__((noinline)) void clear(double *a, long n) {
    for (long i = 0; i < n; i++)
        a[i] = 0;
}

__attribute__((noinline)) void copy(char *restrict to, const char *restrict from, long n) {
    for (long i = 0; i < n; i++)
        to[i] = from[i];
}

__attribute__((noinline)) void shift(int *a, long n) {
    for (long i = 0; i < n; i++)
        a[i] = a[i + 1];
}

__attribute__((noinline)) void assign(struct middle *to, const struct middle *from) {
    *to = *from;
}

__attribute__((noinline)) struct large result(const struct large *of) {
    return *of;
}

int main(void) {
    unsigned me = bz_node(), nodes = bz_nodes();
    if (me == 0) {
        bz_publish(0, bz_alloc(COUNT * sizeof(double)));
        bz_publish(1, bz_alloc(COUNT));
        bz_publish(2, bz_alloc((COUNT + 1) * sizeof(int)));
        bz_publish(3, bz_alloc(2 * sizeof(struct middle)));
        bz_publish(4, bz_alloc(sizeof(struct large)));
    }
    double *doubles = bz_lookup(0);
    char *chars = bz_lookup(1);
    int *ints = bz_lookup(2);
    struct middle *middle = bz_lookup(3);
    struct large *large = bz_lookup(4);
    static char mine[COUNT];
    static struct large whole;
    uint64_t wrong = 0;
    for (unsigned lap = 1; lap <= 2 * nodes; lap++) {
        unsigned writer = lap % nodes;
        if (me == writer) {
            for (int i = 0; i < COUNT; i++) {
                doubles[i] = lap + i;
                chars[i] = (char)(lap + i);
                ints[i] = (int)lap + i;
            }
            ints[COUNT] = (int)lap + COUNT;
            for (int i = 0; i < (int)sizeof(struct middle); i++)
                middle[0].bytes[i] = (char)(lap * 3 + (unsigned)i);
            for (int i = 0; i < (int)sizeof(struct large); i++)
                large->bytes[i] = (char)(lap * 5 + (unsigned)i);
        }
        bz_barrier();
        if (me == (writer + 1) % nodes) {
            clear(doubles + 5, COUNT - 10);
            copy(mine, chars, COUNT);
            shift(ints, COUNT);
            assign(&middle[1], &middle[0]);
            whole = result(large);
            for (int i = 0; i < COUNT; i++)
                wrong += mine[i] != (char)(lap + (unsigned)i);
            for (int i = 0; i < (int)sizeof(struct large); i++)
                wrong += whole.bytes[i] != (char)(lap * 5 + (unsigned)i);
        }
        bz_barrier();
        for (int i = 0; i < COUNT; i++) {
            wrong += doubles[i] != (i < 5 || i >= COUNT - 5 ? lap + i : 0);
            wrong += ints[i] != (int)lap + i + 1;
        }
        for (int i = 0; i < (int)sizeof(struct middle); i++)
            wrong += middle[1].bytes[i] != (char)(lap * 3 + (unsigned)i);
        bz_barrier();
    }
    wrong = bz_reduce_sum_u64(wrong);
    if (me == 0)
        printf("%llu wrong\n", (unsigned long long)wrong);
    return wrong != 0;
}
