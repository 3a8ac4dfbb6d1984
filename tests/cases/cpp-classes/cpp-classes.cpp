//# flags: -O0 | -O2 | -Os
//# link: -pie | -no-pie | -pie -s
/* Virtual calls through multiple and virtual bases, pointers to members, dynamic_cast and typeid, static initialisation, lambdas,
 * std::function, templates, containers, streams, coroutine-free C++20 algorithms. */
#include "arena.h"
#include <algorithm>
#include <functional>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <variant>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
    virtual std::string name() const { return "shape"; }
};
struct Named { std::string label; virtual std::string describe() const { return "[" + label + "]"; } virtual ~Named() {} };
struct Square : Shape { double s; explicit Square(double x) : s(x) {} double area() const override { return s * s; } };
struct Circle final : Shape, Named {
    double r;
    explicit Circle(double x) : r(x) { label = "circle"; }
    double area() const override { return 3 * r * r; }
    std::string name() const override { return "circle"; }
    std::string describe() const override { return name() + Named::describe(); }
};
struct Top { int t = 1; virtual int f() { return t; } virtual ~Top() {} };
struct A : virtual Top { int f() override { return t * 2; } virtual int g() { return 5; } };
struct B : virtual Top { int b = 3; virtual int h() { return b; } };
struct C : A, B { int f() override { return A::f() + B::b; } int g() override { return 6; } int h() override { return 7; } };

static std::vector<std::string> &log_lines() { static std::vector<std::string> lines; return lines; }
struct Registered { explicit Registered(const char *n) { log_lines().push_back(n); } ~Registered() { std::puts("destroyed"); } };
static Registered one("one"), two("two");
static thread_local std::string per_thread = "thread";
template <int N> struct Fib { static constexpr uint64_t value = Fib<N - 1>::value + Fib<N - 2>::value; };
template <> struct Fib<0> { static constexpr uint64_t value = 0; };
template <> struct Fib<1> { static constexpr uint64_t value = 1; };

__attribute__((noinline)) static int member(C &c, int (C::*f)()) { return (c.*f)(); }
__attribute__((noinline)) static int through(Top &t) { return t.f(); }

int main() {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 20; i++)
        if (i % 3) shapes.push_back(std::make_unique<Square>(i)); else shapes.push_back(std::make_unique<Circle>(i));
    double total = 0;
    std::string text;
    for (auto &s : shapes) {
        total += s->area();
        text += s->name()[0];
        if (auto *n = dynamic_cast<Named *>(s.get())) text += n->describe();
        text += typeid(*s).name()[1];
    }
    std::cout << total << ' ' << text << '\n';
    C c;
    B &b = c;
    Top &t = c;
    std::cout << through(c) << b.h() << b.f() << t.f() << member(c, &C::g) << member(c, &C::f) << (dynamic_cast<A *>(&b) == &c)
              << (dynamic_cast<Circle *>(shapes[1].get()) == nullptr) << '\n';
    try { (void)dynamic_cast<Circle &>(*shapes[1]); } catch (const std::bad_cast &) { std::cout << "bad cast\n"; }
    for (auto &l : log_lines()) std::cout << l << ' ';
    std::cout << per_thread << ' ' << Fib<60>::value << '\n';

    std::map<std::string, int> counts;
    std::unordered_map<int, std::string> words;
    std::set<int> unique;
    std::list<int> order;
    for (int i = 0; i < 500; i++) {
        std::string w = "w" + std::to_string(i * 31 % 97);
        counts[w]++, words[i % 50] += w, unique.insert(i * i % 101), order.push_front(i);
    }
    order.sort([](int x, int y) { return x % 7 == y % 7 ? x < y : x % 7 < y % 7; });
    for (auto &[k, v] : counts) mix_bytes(k.data(), k.size()), mix(uint64_t(v));
    for (int i = 0; i < 50; i++) mix_bytes(words[i].data(), words[i].size());
    for (int u : unique) mix(uint64_t(u));
    for (int o : order) mix(uint64_t(o));
    std::function<uint64_t(uint64_t)> f = [](uint64_t x) { return x + 1; };
    for (int i = 0; i < 20; i++) f = [f, i](uint64_t x) { return f(x) * 3 + uint64_t(i); };
    mix(f(1));
    std::variant<int, double, std::string> v = std::string("variant");
    for (int i = 0; i < 3; i++) {
        mix(uint64_t(std::visit([](auto &x) { return int(sizeof(x)); }, v)));
        if (i == 0) v = 5; else v = 2.5;
    }
    std::vector<int> numbers(1000);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::rotate(numbers.begin(), numbers.begin() + 300, numbers.end());
    auto middle = std::stable_partition(numbers.begin(), numbers.end(), [](int x) { return x % 3 == 0; });
    std::partial_sort(middle, middle + 50, numbers.end(), std::greater<int>());
    for (int x : numbers) mix(uint64_t(x));
    std::ostringstream out;
    out << std::hex << 255 << std::dec << ' ' << 3.25 << ' ' << true << std::string(5, '-');
    std::istringstream in("17 words 2.5");
    int i; std::string w; double d;
    in >> i >> w >> d;
    std::cout << out.str() << i << w << d << std::endl;
    report("classes");
}
