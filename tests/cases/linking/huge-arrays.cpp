//# compilers: gcc
//# flags: -O0 -mcmodel=medium -fpie | -O2 -mcmodel=medium -fpie
//# link: -pie | -pie -s | -pie -Wl,-z,max-page-size=0x200000
//# nodes: 2
/* More static data than a jump reaches, of which a few pages are touched: new code stands in front of the program. What finds code and data by a
 * program's load address and its ends must still find them: relocated pointers, exceptions through the program and through a library, names. */
#include <blizzard.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <stdexcept>
#include <string>

static const uint64_t MIB = 1 << 20;
static unsigned char bytes[2048 * MIB];
static uint64_t words[1024 * MIB / 8];
static unsigned char *volatile middle = &bytes[1024 * MIB];
static const uint64_t *const last = &words[1024 * MIB / 8 - 1];
static int (*volatile print)(const char *, ...) = std::printf;

__attribute__((noinline)) static uint64_t step(uint64_t at) {
    if (at % 3 == 0) throw std::runtime_error("at " + std::to_string(at));
    bytes[at * MIB] += at;
    words[at * MIB / 16] ^= bytes[at * MIB];
    return words[at * MIB / 16] + at;
}

static int compare(const void *a, const void *b) {
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    if (x == 99 || y == 99) throw x + y;
    return x - y;
}

int main() {
    unsigned me = bz_node(), nodes = bz_nodes();
    if (me == 0) bz_publish(0, bz_alloc(4096));
    uint64_t *sums = static_cast<uint64_t *>(bz_lookup(0));
    uint64_t sum = 0;
    std::string what;
    for (uint64_t at = 0; at < 2048; at += 31) {
        try {
            sum = sum * 31 + step(at);
        } catch (const std::exception &e) {
            what = e.what();
        }
    }
    *middle += 5;
    sum += bytes[1024 * MIB] + *last;
    int numbers[] = {3, 99, 2};
    try {
        qsort(numbers, 3, sizeof *numbers, compare);
    } catch (int both) {
        sum += both > 99;
    }
    Dl_info info;
    bool found = dladdr(bytes, &info) != 0;
    sums[me * 8] = sum;
    bz_barrier();
    uint64_t same = 0;
    for (unsigned k = 0; k < nodes; k++) same += sums[k * 8] == sum;
    if (me == 0) print("%llx %s %d %d\n", static_cast<unsigned long long>(sum), what.c_str(), found, same == nodes);
    bz_barrier();
    return 0;
}
