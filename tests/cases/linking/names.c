//# flags: -O1
//# link: -pie -rdynamic | -no-pie -rdynamic | -pie -rdynamic -Wl,--hash-style=sysv | -no-pie -rdynamic -Wl,--hash-style=both -s
/* dladdr and backtrace_symbols name return addresses also in functions that keep their old addresses, and dlsym finds these still. */
#define _GNU_SOURCE
#include "arena.h"
#include <dlfcn.h>
#include <execinfo.h>

static void name(const char *what, void *address) {
    Dl_info info;
    int found = dladdr(address, &info) != 0;
    printf("%s: %s, its symbol %s\n", what, found && info.dli_sname ? info.dli_sname : "none",
           found && info.dli_saddr <= address ? "not behind" : "behind");
}

__attribute__((noinline)) static void hidden(void) { name("caller of hidden", __builtin_return_address(0)); }

__attribute__((noinline)) void innermost(int number) {
    void *frames[16];
    int count = backtrace(frames, 16);
    char **symbols = backtrace_symbols(frames, count);
    for (int k = 0; k < count; k++) {
        /* file(function+0x12) [0x1234] */
        char *begin = strchr(symbols[k], '('), *end = begin ? strpbrk(begin, "+)") : 0;
        printf("%d: %.*s\n", k, begin ? (int)(end - begin - 1) : 0, begin ? begin + 1 : "");
        if (begin && !strncmp(begin, "(main+", 6))
            break;
    }
    free(symbols);
    name("caller of innermost", __builtin_return_address(0));
    hidden();
    mix(number);
}

__attribute__((noinline)) void taken(void (*f)(int)) {
    f(3);
    mix(4);
}

int main(void) {
    taken(innermost);
    name("main", (void *)main);
    name("taken", (void *)taken);
    printf("%d %d %d\n", dlsym(0, "main") == (void *)main, dlsym(0, "taken") == (void *)taken,
           dlsym(0, "innermost") == (void *)innermost);
    report("named");
    return 0;
}
