//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
//# signal: SIGABRT
/* An exception that leaves a noexcept function ends the program through the terminate handler, with a handler further up. */
#include <cstdio>
#include <cstdlib>
#include <exception>
static void handler() { std::puts("terminate handler"); std::fflush(stdout); std::abort(); }
__attribute__((noinline)) static void fails(int n) { if (n > 0) throw n; }
__attribute__((noinline)) static void promises(int n) noexcept { fails(n); std::puts("not reached"); }
int main(int argc, char **) {
    std::set_terminate(handler);
    try { promises(argc); } catch (int) { std::puts("caught, wrongly"); }
}
