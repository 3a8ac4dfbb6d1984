//# compilers: clang
//# flags: -O2 | -O1 | -O0
//# link: -fbasic-block-sections=all | -fbasic-block-sections=all -no-pie
/* Functions in pieces with a frame each (-fbasic-block-sections, Propeller): LLVM gives each piece an area of call sites whose
 * table claims to reach to the end of the last piece's, over the headers of those between. */
#include <cstdio>
#include <stdexcept>
#include <string>

struct Guard {
    int number;
    ~Guard() { printf("left %d\n", number); }
};

__attribute__((noinline)) static int choose(int n) {
    Guard guard{n};
    switch (n % 5) {
    case 0:
        throw std::runtime_error("runtime " + std::to_string(n));
    case 1:
        return printf("one\n") * n;
    case 2:
        throw n;
    case 3:
        return n > 7 ? printf("large\n") : throw std::string("small");
    default:
        return -n;
    }
}

__attribute__((noinline)) static long many(int rounds) {
    long sum = 0;
    for (int n = 0; n < rounds; ++n) {
        Guard outer{100 + n};
        try {
            sum += choose(n);
            if (sum % 3 == 0)
                throw sum;
        } catch (const std::exception &e) {
            printf("%s\n", e.what());
        } catch (int number) {
            sum -= number;
        } catch (long) {
            sum += 1;
        }
    }
    return sum;
}

int main() {
    try {
        printf("%ld\n", many(3));
        printf("%ld\n", many(20));
    } catch (const std::string &text) {
        printf("caught %s\n", text.c_str());
    }
    return 0;
}
