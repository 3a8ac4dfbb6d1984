//# flags: -O0 | -O2 | -Os
//# link: -pie | -no-pie | -pie -s | -rdynamic -DLOOKUP | -no-pie -rdynamic -DLOOKUP
/* A function has one address, whoever asks: static tables, comparisons, callbacks from the C library, atexit, arithmetic on
 * function pointers, dlsym of a function of the program itself. */
#define _GNU_SOURCE
#include "arena.h"
#include <dlfcn.h>

typedef int (*compare)(const void *, const void *);
int ascending(const void *a, const void *b) { return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b); }
int descending(const void *a, const void *b) { return ascending(b, a); }
static int by_last_digit(const void *a, const void *b) {
    int x = *(const int *)a % 10, y = *(const int *)b % 10;
    return x == y ? ascending(a, b) : x - y;
}
static const struct {
    const char *name;
    compare function;
} table[] = {{"ascending", ascending}, {"descending", descending}, {"by_last_digit", by_last_digit}};
compare exported = ascending;

__attribute__((noinline)) static const char *name_of(compare function) {
    for (unsigned i = 0; i < 3; i++)
        if (table[i].function == function)
            return table[i].name;
    return "unknown";
}
static void goodbye(void) { puts("goodbye"); }
static void farewell(void) { puts("farewell"); fflush(stdout); }
__attribute__((constructor(201))) static void first(void) { puts("constructor 201"); }
__attribute__((constructor(202))) static void second(void) { puts("constructor 202"); }
__attribute__((destructor)) static void last(void) { puts("destructor"); }

int main(void) {
    int numbers[100];
    for (unsigned t = 0; t < 3; t++) {
        for (int i = 0; i < 100; i++)
            numbers[i] = i * 7919 % 1013;
        qsort(numbers, 100, sizeof *numbers, table[t].function);
        mix_bytes(numbers, sizeof numbers);
        int key = 7919 * 31 % 1013;
        int *found = (int *)bsearch(&key, numbers, 100, sizeof *numbers, table[t].function);
        EXPECT(found && *found == key, "bsearch");
    }
    report("sorted");
    compare volatile chosen = by_last_digit;
    printf("%s %s %s\n", name_of(ascending), name_of(exported), name_of(chosen));
    EXPECT(exported == &ascending, "a pointer in data and one in code differ");
    compare copy;
    memcpy(&copy, &table[1].function, sizeof copy);
    EXPECT(copy == descending && copy != ascending, "a copied pointer differs");
    EXPECT((uintptr_t)table[0].function - (uintptr_t)table[1].function == (uintptr_t)ascending - (uintptr_t)descending, "difference");
#ifdef LOOKUP
    EXPECT(dlsym(RTLD_DEFAULT, "ascending") == (void *)ascending, "dlsym");
    Dl_info info;
    EXPECT(dladdr((void *)descending, &info) && info.dli_sname && !strcmp(info.dli_sname, "descending"), "dladdr");
#endif
    atexit(goodbye);
    atexit(farewell);
    return case_failures != 0;
}
