// What C++ programs do beside arithmetic. `objects maps N`: trees and hash tables of strings; `objects exceptions N`: throws through several frames
// with destructors; `objects callbacks N`: qsort with a comparison function, and virtual calls.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

static uint64_t state = 88172645463325252u;
static uint64_t next() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state >> 20;
}

static uint64_t maps(unsigned rounds) {
    uint64_t sum = 0;
    for (unsigned r = 0; r < rounds; r++) {
        std::map<std::string, unsigned> tree;
        std::unordered_map<std::string, unsigned> table;
        for (unsigned i = 0; i < 4000; i++) {
            std::string key = "key " + std::to_string(next() % 2500);
            tree[key] += i, table[key] ^= i;
        }
        for (auto &[key, value] : tree) sum += value ^ table.at(key);
        for (unsigned i = 0; i < 1000; i++) tree.erase(tree.begin());
        sum += tree.size();
    }
    return sum;
}

struct Guard {
    std::string text = "some text that is too long to be kept within the string";
    ~Guard() { state += text.size(); }
};

__attribute__((noinline)) static unsigned deeper(unsigned depth, unsigned n) {
    Guard guard;
    if (depth == 0) {
        if (n % 3 == 0) throw std::runtime_error("three");
        if (n % 3 == 1) throw n;
        return n;
    }
    return deeper(depth - 1, n) + 1;
}

static uint64_t exceptions(unsigned rounds) {
    uint64_t sum = 0;
    for (unsigned n = 0; n < rounds * 100; n++) {
        try {
            sum += deeper(n % 5, n);
        } catch (const std::exception &e) {
            sum += strlen(e.what());
        } catch (unsigned value) {
            sum ^= value;
        }
    }
    return sum;
}

struct Shape {
    virtual ~Shape() = default;
    virtual uint64_t area() const = 0;
};
struct Square : Shape {
    uint64_t side;
    explicit Square(uint64_t s) : side(s) {}
    uint64_t area() const override { return side * side; }
};
struct Oblong : Shape {
    uint64_t a, b;
    Oblong(uint64_t a, uint64_t b) : a(a), b(b) {}
    uint64_t area() const override { return a * b; }
};

static int by_area(const void *a, const void *b) {
    uint64_t x = (*static_cast<const Shape *const *>(a))->area(), y = (*static_cast<const Shape *const *>(b))->area();
    return (x > y) - (x < y);
}

static uint64_t callbacks(unsigned rounds) {
    uint64_t sum = 0;
    for (unsigned r = 0; r < rounds; r++) {
        std::vector<std::unique_ptr<Shape>> all;
        std::vector<const Shape *> order;
        for (unsigned i = 0; i < 5000; i++) {
            if (next() % 2) all.push_back(std::make_unique<Square>(next() % 1000));
            else all.push_back(std::make_unique<Oblong>(next() % 1000, next() % 1000));
            order.push_back(all.back().get());
        }
        qsort(order.data(), order.size(), sizeof order[0], by_area);
        for (unsigned i = 0; i < order.size(); i += 100) sum = sum * 31 + order[i]->area();
    }
    return sum;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    std::string what = argv[1];
    unsigned rounds = atoi(argv[2]);
    uint64_t sum = what == "maps" ? maps(rounds) : what == "exceptions" ? exceptions(rounds) : callbacks(rounds);
    printf("%s %llu\n", argv[1], static_cast<unsigned long long>(sum));
}
