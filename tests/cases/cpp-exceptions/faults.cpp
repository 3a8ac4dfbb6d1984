//# compilers: gcc
//# flags: -O2 -fnon-call-exceptions -fno-tree-vectorize
//# exit: 0
/* A handler of SIGSEGV throws out of a loop; the landing pad reads registers that the loop itself does not need any more. */
#include <csignal>
#include <cstdio>
#include <sys/mman.h>

struct Fault {};

static void handler(int) { throw Fault(); }

__attribute__((noinline)) static long id(long x) {
    asm volatile("" : "+r"(x));
    return x;
}

__attribute__((noinline)) static long sum(long *p, long n, long seed) {
    long a = id(seed), b = id(seed + 1), c = id(seed + 2), d = id(seed + 3), e = id(seed + 4);
    long s = 0;
    try {
        for (long i = 0; i < n; i++)
            s += p[i];
    } catch (Fault &) {
        return a * 10000 + b * 1000 + c * 100 + d * 10 + e;
    }
    return s;
}

int main() {
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    char *pages = static_cast<char *>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(pages + 4096, 4096);
    long whole = sum(reinterpret_cast<long *>(pages), 512, 1), cut = sum(reinterpret_cast<long *>(pages), 600, 1);
    std::printf("%ld %ld\n", whole, cut);
    return whole == 0 && cut == 12345 ? 0 : 1;
}
