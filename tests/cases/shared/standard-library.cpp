//# flags: -O0 | -O2
//# link: -pie | -static
//# compilers: gcc
//# nodes: 2 3
/* The C++ standard library on shared memory: algorithms, strings, streams and containers that read what another node wrote last, and containers that live
 * in shared memory and that the nodes change in turn. Much of this is code of libstdc++ itself: the insertion into a tree, the hook of a list,
 * the growth of a table, the extraction of numbers, the hash of a string. */
#include "check.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <iterator>
#include <list>
#include <map>
#include <new>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

/* Memory of the run for containers. */
template <class T>
struct Shared {
    using value_type = T;
    Shared() = default;
    template <class U>
    Shared(const Shared<U> &) {}
    T *allocate(std::size_t n) {
        if (void *p = bz_alloc(n * sizeof(T))) return static_cast<T *>(p);
        throw std::bad_alloc();
    }
    void deallocate(T *p, std::size_t) { bz_free(p); }
};
template <class T, class U>
bool operator==(const Shared<T> &, const Shared<U> &) { return true; }
template <class T, class U>
bool operator!=(const Shared<T> &, const Shared<U> &) { return false; }

using Text = std::basic_string<char, std::char_traits<char>, Shared<char>>;
struct Containers {
    std::map<int, int, std::less<int>, Shared<std::pair<const int, int>>> tree;
    std::unordered_map<int, int, std::hash<int>, std::equal_to<int>, Shared<std::pair<const int, int>>> table;
    std::list<int, Shared<int>> list;
    std::deque<int, Shared<int>> deque;
    std::vector<Text, Shared<Text>> texts;
};

/* Bytes that streams read where they lie. */
struct Window : std::streambuf {
    Window(char *from, std::size_t bytes) {
        setg(from, from, from + bytes);
        setp(from, from + bytes);
    }
    std::size_t put() const { return std::size_t(pptr() - pbase()); }
};

enum { COUNT = 3000, BYTES = 6000 };

static int value(int i, int seed) { return (i * 7919 + seed * 31) % 10007; }

/* The other node's part of the area, written by this one. */
struct Area {
    int sorted[COUNT], stable[COUNT], selected[COUNT], summed[COUNT], copied[COUNT], searched[COUNT];
    double reals[COUNT];
    char text[BYTES], line[BYTES], numbers[BYTES], hashed[BYTES], out[BYTES];
};

static void fill(Area &a, int seed) {
    for (int i = 0; i < COUNT; i++) {
        a.sorted[i] = a.stable[i] = a.selected[i] = a.summed[i] = a.copied[i] = value(i, seed);
        a.searched[i] = 3 * i + seed;
        a.reals[i] = value(i, seed) * 0.25;
    }
    for (int i = 0; i < BYTES; i++) {
        a.text[i] = a.line[i] = a.hashed[i] = i % 100 == 99 ? '\n' : char('a' + (i + seed) % 26);
        a.out[i] = '-';
    }
    a.text[BYTES - 1] = a.line[BYTES - 1] = a.hashed[BYTES - 1] = 0;
    for (char *p = a.numbers; p < a.numbers + BYTES; p += 20) {
        std::memset(p, ' ', 20);
        p[snprintf(p, 20, "%d %.2f", int(p - a.numbers) + seed, seed + 0.25)] = ' ';
    }
}

static std::vector<int> values(int seed) {
    std::vector<int> v(COUNT);
    for (int i = 0; i < COUNT; i++) v[std::size_t(i)] = value(i, seed);
    return v;
}

static std::string lines(int seed) {
    std::string s;
    for (int i = 0; i < BYTES - 1; i++) s += i % 100 == 99 ? '\n' : char('a' + (i + seed) % 26);
    return s;
}

static void algorithms(Area &a, int seed) {
    std::vector<int> expected = values(seed);
    std::sort(a.sorted, a.sorted + COUNT);
    std::stable_sort(a.stable, a.stable + COUNT, [](int x, int y) { return x % 100 < y % 100; });
    std::nth_element(a.selected, a.selected + 1000, a.selected + COUNT);
    CHECK(std::accumulate(a.summed, a.summed + COUNT, 0L) == std::accumulate(expected.begin(), expected.end(), 0L));
    std::vector<int> copy(a.copied, a.copied + COUNT);
    CHECK(copy == expected);
    std::reverse(a.copied, a.copied + COUNT);
    CHECK(std::lower_bound(a.searched, a.searched + COUNT, 3 * 1234 + seed) == a.searched + 1234);
    double most = *std::max_element(a.reals, a.reals + COUNT);
    CHECK(most == 0.25 * *std::max_element(expected.begin(), expected.end()));
    std::transform(a.reals, a.reals + COUNT, a.reals, [](double x) { return x * 2; });
}
static void algorithms_elsewhere(Area &a, int seed) {
    std::vector<int> v = values(seed);
    CHECK(std::equal(v.rbegin(), v.rend(), a.copied));
    std::stable_sort(v.begin(), v.end(), [](int x, int y) { return x % 100 < y % 100; });
    CHECK(std::equal(v.begin(), v.end(), a.stable));
    std::sort(v.begin(), v.end());
    CHECK(std::equal(v.begin(), v.end(), a.sorted) && a.selected[1000] == v[1000]);
    CHECK(std::is_permutation(v.begin(), v.begin() + 1000, a.selected));
    CHECK(std::inner_product(a.reals, a.reals + COUNT, a.reals, 0.0) > 0 && a.reals[7] == value(7, seed) * 0.5);
}

static void strings(Area &a, int seed) {
    const std::string expected = lines(seed);
    std::string s(a.text);
    CHECK(s == expected);
    CHECK(std::hash<std::string_view>()({a.hashed, BYTES - 1}) == std::hash<std::string>()(expected));
    Window line(a.line, BYTES - 1);
    std::istream in(&line);
    std::string one, all;
    while (std::getline(in, one)) all += one + '\n';
    CHECK(all == expected + '\n' || all == expected);
    Window numbers(a.numbers, BYTES);
    std::istream extract(&numbers);
    int n, found = 0;
    double d;
    while (extract >> n >> d) {
        CHECK(n == found * 20 + seed && d == seed + 0.25);
        found++;
    }
    CHECK(found == BYTES / 20);
    Window window(a.out, BYTES);
    std::ostream out(&window);
    out << seed << ' ' << 1.5 << ' ' << std::string(300, 'x') << std::hex << ' ' << 48879 << std::endl;
    out.write(expected.data(), 1000);
    CHECK(out.good() && window.put() > 1300);
}
static void strings_elsewhere(Area &a, int seed) {
    std::ostringstream expected;
    expected << seed << " 1.5 " << std::string(300, 'x') << " beef\n" << lines(seed).substr(0, 1000) << "---";
    CHECK(expected.str().compare(0, std::string::npos, a.out, expected.str().size()) == 0);
}

/* One step of a node on the containers, which the node before it has changed last. */
static void change(Containers &c, int step) {
    for (int i = 0; i < 40; i++) {
        int key = (step * 40 + i) * 7919 % 10007;
        c.tree[key] = step;
        c.table[key] = step;
        if (i % 2) c.list.push_front(key);
        else c.list.push_back(key);
        c.deque.push_back(key);
    }
    if (step % 3 == 2) {
        c.tree.erase(c.tree.begin(), std::next(c.tree.begin(), 30));
        c.table.erase(step * 40 * 7919 % 10007);
        c.list.remove_if([](int k) { return k % 5 == 0; });
        c.list.sort();
        for (int i = 0; i < 50; i++) c.deque.pop_front();
    }
    c.texts.emplace_back(std::size_t(step * 10), char('a' + step % 26));
    c.texts[std::size_t(step) / 2].append("+longer than fits into the object itself");
}

template <class C>
static unsigned long digest(const C &c) {
    unsigned long hash = c.tree.size() + 31 * c.table.size() + 977 * c.list.size() + c.deque.size();
    for (auto &[key, what] : c.tree) hash = hash * 1000003 + unsigned(key * 5 + what);
    unsigned long any_order = 0;
    for (auto &[key, what] : c.table) any_order += unsigned(key * key + what);
    hash = hash * 1000003 + any_order;
    for (int k : c.list) hash = hash * 1000003 + unsigned(k);
    for (int k : c.deque) hash = hash * 1000003 + unsigned(k);
    for (auto &t : c.texts) hash = hash * 1000003 + std::hash<std::string_view>()({t.data(), t.size()});
    return hash;
}

static void containers(unsigned nodes) {
    if (node == 0) bz_publish(1, new (bz_alloc(sizeof(Containers))) Containers);
    Containers &c = *static_cast<Containers *>(bz_lookup(1));
    for (int step = 0; step < 24; step++) {
        if (unsigned(step) % nodes == node) change(c, step);
        bz_barrier();
    }
    /* One node computes the same alone; the digest is printed, so it is the same for any number of nodes. */
    unsigned long hash = digest(c);
    CHECK(bz_reduce_min_u64(hash) == hash);
    bool out_of_range = false;
    try {
        c.texts.at(24 + node);
    } catch (const std::out_of_range &) {
        out_of_range = true;
    }
    CHECK(out_of_range);
    bz_barrier();
    if (node == nodes - 1) c.~Containers();
    bz_barrier();
    if (node == 0) std::cout << "containers " << hash << std::endl;
}

int main() {
    node = bz_node();
    unsigned nodes = bz_nodes(), next = (node + 1) % nodes;
    if (node == 0) bz_publish(0, bz_alloc(nodes * sizeof(Area)));
    Area *areas = static_cast<Area *>(bz_lookup(0)), &mine = areas[node], &theirs = areas[next];
    for (int round = 0; round < 2; round++) {
        fill(theirs, round * 7 + int(next));
        bz_barrier();
        algorithms(mine, round * 7 + int(node));
        strings(mine, round * 7 + int(node));
        bz_barrier();
        algorithms_elsewhere(theirs, round * 7 + int(next));
        strings_elsewhere(theirs, round * 7 + int(next));
        bz_barrier();
    }
    containers(nodes);
    if (node == nodes - 1) fill(areas[0], 3);
    bz_barrier();
    if (node == 0) {
        std::cout.write(areas[0].text, 300);
        std::cout << std::string_view(areas[0].line, 100) << areas[0].hashed + BYTES - 201 << '\n';
    }
    return failed();
}
