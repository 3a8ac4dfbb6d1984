//# flags: -O2 | -O3 | -Os | -O1
//# link: -pie | -no-pie | -pie -s
/* Functions that the compiler splits into a hot and a `.cold` part, with exceptions raised and caught in the cold part, jumps in
 * both directions and live registers over them. */
#include "arena.h"
#include <stdexcept>
#include <string>
#include <vector>

__attribute__((noinline, cold)) static void complain(const char *what, uint64_t n) { throw std::runtime_error(std::string(what) + std::to_string(n)); }
__attribute__((noinline, cold)) static uint64_t unlikely_work(uint64_t n) { return n * 3 + 1; }

__attribute__((noinline)) static uint64_t hot(const std::vector<uint64_t> &v, uint64_t limit) {
    uint64_t sum = 0, extra = limit * 5;
    for (std::size_t i = 0; i < v.size(); i++) {
        if (__builtin_expect(v[i] > limit, 0)) {
            sum += unlikely_work(v[i]) ^ extra;
            extra += sum;
            try {
                if (v[i] % 5 == 0) complain("five ", v[i]);
                if (v[i] % 7 == 0) complain("seven ", v[i]);
            } catch (const std::runtime_error &e) {
                sum += std::string(e.what()).size() * extra;
                if (v[i] % 35 == 0) throw;
                continue;
            }
        }
        sum = sum * 31 + v[i] + extra;
    }
    return sum;
}
__attribute__((noinline)) static int hot_switch(int n, std::string &out) {
    switch (n) {
    case 0: out += "zero"; return 1;
    case 1: out += "one"; return 2;
    case 2: complain("two ", 2); break;
    case 3: out += "three"; return 4;
    case 4: if (out.size() > 1000) complain("long ", out.size()); out += "four"; return 5;
    case 5: out += 'f'; break;
    }
    return n;
}

int main() {
    std::vector<uint64_t> v;
    for (uint64_t i = 0; i < 300; i++) v.push_back(i * 7919 % 1009);
    for (uint64_t limit = 0; limit < 1100; limit += 53)
        try { mix(hot(v, limit)); } catch (const std::exception &e) { mix(uint64_t(e.what()[0])); std::puts(e.what()); }
    std::string out;
    for (int i = 0; i < 2000; i++)
        try { mix(uint64_t(hot_switch(i % 7, out))); } catch (const std::exception &e) { mix_bytes(e.what(), 4); out.resize(out.size() / 2); }
    report("cold parts");
}
