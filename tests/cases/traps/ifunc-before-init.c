//# compilers: gcc clang
//# flags: -O0 | -O2
//# link: -pie | -no-pie | -pie -Wl,-z,now | -no-pie -Wl,-z,lazy | -pie -s
/* IFUNC resolvers of the program run while it is relocated, before any initialiser: they read and write memory, so the tag table
 * must be there already. */
#include "arena.h"

static int resolver_calls;
static int table[64] = {1, 2, 3};
typedef int (*operation)(int, int);
static int add(int a, int b) { return a + b; }
static int subtract(int a, int b) { return a - b; }

static operation resolve_first(void) {
    volatile int *p = table;
    for (int i = 3; i < 64; i++)
        p[i] = p[i - 1] + p[i - 2];
    resolver_calls++;
    return (p[10] & 1) ? add : subtract;
}
static operation resolve_second(void) {
    int local[32];
    for (int i = 0; i < 32; i++)
        ((volatile int *)local)[i] = i * i;
    resolver_calls++;
    return ((volatile int *)local)[7] == 49 ? subtract : add;
}
int first(int, int) __attribute__((ifunc("resolve_first")));
int second(int, int) __attribute__((ifunc("resolve_second")));
operation pointer = first;

int main(void) {
    operation volatile again = first;
    printf("%d %d %d %d\n", first(30, 12), second(30, 12), pointer(5, 4), pointer == again);
    printf("%d %d\n", resolver_calls >= 2, table[20]);
    return 0;
}
