//# flags: -O0 | -O2 | -O2 -fomit-frame-pointer
//# link: -pie -rdynamic
/* Backtraces show the names of C++ functions: templates, lambdas, members, out of a callback of the C library and out of a
 * terminate handler. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <execinfo.h>
#include <stdexcept>
#include <string>

/* The names of functions that are called by name only: others are known by their old addresses, where no return address leads (README, "What it cannot do yet"). */
__attribute__((noinline)) static void show(const char *where) {
    void *frames[64];
    int count = backtrace(frames, 64);
    char **symbols = backtrace_symbols(frames, count);
    std::printf("%s:\n", where);
    for (int i = 1; i < count; i++) {
        char *name = std::strchr(symbols[i], '(');
        char *end = name ? std::strpbrk(name, "+)") : nullptr;
        if (!end) continue;
        *end = 0;
        int status;
        char *plain = abi::__cxa_demangle(name + 1, nullptr, nullptr, &status);
        if (plain && std::strstr(plain, "by_name")) std::printf("  %s\n", plain);
        std::free(plain);
    }
    std::free(symbols);
}

template <typename T> struct Holder {
    T value;
    __attribute__((noinline)) int by_name(int depth) {
        int result = depth == 0 ? (show("member of a template"), 1) : by_name(depth - 1) + 1;
        asm volatile("" ::: "memory");
        return result;
    }
};

__attribute__((noinline)) int compared_by_name(int a, int b) {
    static bool shown;
    if (!shown) {
        shown = true;
        show("callback of qsort");
    }
    return a - b;
}

static int compare(const void *a, const void *b) {
    int result = compared_by_name(*(const int *)a, *(const int *)b);
    asm volatile("" ::: "memory");
    return result;
}

__attribute__((noinline)) void throws_by_name(int n) {
    if (n == 0) throw std::runtime_error("out");
    throws_by_name(n - 1);
    asm volatile("" ::: "memory");
}

static void terminated() {
    show("terminate handler");
    std::fflush(stdout);
    std::_Exit(0);
}

int main() {
    Holder<std::string> holder{"text"};
    std::printf("%d\n", holder.by_name(2));
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    try {
        throws_by_name(3);
    } catch (std::exception &e) {
        std::printf("%s\n", e.what());
    }
    std::set_terminate(terminated);
    throws_by_name(2);
}
