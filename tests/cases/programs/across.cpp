//# flags: -O2 | -O0
//# link: -pie -fPIC | -no-pie | -pie -fPIC -Wl,-z,now -s
//# library: across_library.cpp
/* Exceptions that cross frames of the program and of a shared library in turn, in both directions, caught by types of either. */
#include "across.h"
#include <cstdio>

struct Deeper : Visitor {
    int limit;
    explicit Deeper(int limit) : limit(limit) {}
    int visit(int n) override {
        std::string local(std::size_t(n), 'v');
        if (n == limit)
            throw std::out_of_range("limit in the program");
        int below = n % 2 ? walk(n + 1, *this) : guarded(n + 1, *this);
        return below + int(local.size());
    }
};

int main() {
    for (int limit = 2; limit < 9; limit++) {
        Deeper visitor(limit);
        try {
            printf("%d\n", walk(0, visitor));
        } catch (const Failure &f) {
            printf("failure %d: %s\n", f.code, f.what());
        } catch (const std::exception &e) {
            printf("exception: %s\n", e.what());
        }
    }
    return 0;
}
