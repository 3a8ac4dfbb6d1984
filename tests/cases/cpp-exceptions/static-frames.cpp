//# flags: -O2
//# compilers: gcc
//# link: -static | -static-pie | -static -s | -static -Wl,--eh-frame-hdr | -no-pie -static-libgcc -static-libstdc++
/* Exceptions in static programs. gcc links them without a header that leads to the frames: the start-up code tells the unwinder
 * where the old ones are, in which it finds no frame of new code. */
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

struct Guard {
    const char *name;
    ~Guard() { printf("left %s\n", name); }
};

__attribute__((noinline)) static int deep(int n, volatile int *counter) {
    Guard guard{"deep"};
    ++*counter;
    if (n == 0)
        throw std::runtime_error("from the bottom");
    return deep(n - 1, counter) + *counter;
}

static void translated() {
    try {
        throw 5;
    } catch (int number) {
        throw std::string(std::size_t(number), 'x');
    }
}

int main() {
    volatile int counter = 0;
    for (int i = 0; i < 3; i++) {
        try {
            deep(i, &counter);
        } catch (const std::exception &e) {
            printf("caught %s after %d\n", e.what(), counter);
        }
    }
    try {
        translated();
    } catch (const std::string &s) {
        puts(s.c_str());
    }
    std::exception_ptr kept;
    try {
        throw std::out_of_range("kept");
    } catch (...) {
        kept = std::current_exception();
    }
    try {
        std::rethrow_exception(kept);
    } catch (const std::logic_error &e) {
        puts(e.what());
    }
    return 0;
}
