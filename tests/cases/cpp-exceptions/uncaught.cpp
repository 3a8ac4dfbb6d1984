//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
//# signal: SIGABRT
/* An exception that nobody catches: the message of std::terminate names its type and text. */
#include <cstdio>
#include <stdexcept>
struct Guard { ~Guard() { std::puts("cleanup"); } };
__attribute__((noinline)) static void fails(int n) { Guard g; if (n > 0) throw std::runtime_error("nobody catches this"); }
int main(int argc, char **) { std::puts("start"); std::fflush(stdout); fails(argc); }
