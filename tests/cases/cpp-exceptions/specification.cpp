//# flags: -std=c++14 -O0 | -std=c++14 -O2
//# link: -pie | -no-pie -s
/* Dynamic exception specifications: a filter in the LSDA, the unexpected handler throws what is allowed. */
#include <cstdio>
#include <exception>
struct Allowed {};
static void replaced() { throw Allowed(); }
__attribute__((noinline)) static void filtered(int n) throw(Allowed) { if (n == 1) throw Allowed(); if (n == 2) throw 5; }
int main() {
    std::set_unexpected(replaced);
    for (int n = 0; n < 3; n++)
        try { filtered(n); std::puts("nothing"); } catch (Allowed &) { std::puts("allowed"); } catch (...) { std::puts("other"); }
}
