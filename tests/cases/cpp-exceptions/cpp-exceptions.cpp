//# flags: -O0 | -O1 | -O2 | -O3 | -Os | -O2 -fno-omit-frame-pointer
//# link: -pie | -no-pie | -pie -s
/* Exceptions through rewritten frames: nested, rethrown, translated, with cleanups on the way, caught by base, by value and by
 * pointer, out of constructors and array initialisers, through callbacks of the standard library, exception_ptr, filters. */
#include "arena.h"
#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline))
static std::string trace;

struct Guard {
    char name;
    explicit Guard(char n) : name(n) { trace += n; }
    ~Guard() { trace += char(name - 'a' + 'A'); }
};
struct Base { virtual ~Base() {} virtual int code() const { return 1; } };
struct Left : virtual Base { int code() const override { return 2; } };
struct Right : virtual Base { int x = 7; };
struct Bottom : Left, Right { int code() const override { return 4; } };
struct Big { double values[40]; std::string text; };

NOINLINE void raise(int kind) {
    Guard g('r');
    switch (kind % 9) {
    case 0: throw 42;
    case 1: throw std::runtime_error("runtime");
    case 2: throw Bottom();
    case 3: { Big b; b.text = "big"; b.values[39] = 3.5; throw b; }
    case 4: throw "literal";
    case 5: throw std::make_unique<int>(5);
    case 6: throw static_cast<const Base *>(new Left);
    case 7: throw std::bad_alloc();
    default: return;
    }
}

NOINLINE int catching(int kind) {
    Guard g('c');
    try {
        Guard h('t');
        raise(kind);
        return 0;
    } catch (int i) {
        return i;
    } catch (const std::bad_alloc &) {
        return 77;
    } catch (const std::exception &e) {
        trace += e.what();
        return 1;
    } catch (const Base &b) {
        return b.code();
    } catch (const Big &b) {
        return int(b.values[39] * 2) + int(b.text.size());
    } catch (const char *s) {
        return s[0];
    } catch (const Base *p) {
        int code = p->code();
        delete p;
        return code + 100;
    } catch (...) {
        return -1;
    }
}

NOINLINE void deep(int n, int kind) {
    Guard g(char('a' + n % 26));
    std::string local(std::size_t(n), 'x');
    if (n == 0)
        raise(kind);
    else
        deep(n - 1, kind);
    trace += local.substr(0, 1);
}

NOINLINE int rethrowing(int depth) {
    try {
        try {
            if (depth == 0)
                throw std::logic_error("inner");
            rethrowing(depth - 1);
        } catch (std::logic_error &e) {
            trace += e.what();
            if (depth % 2)
                throw;
            throw std::runtime_error(std::string(e.what()) + std::to_string(depth));
        }
    } catch (std::runtime_error &e) {
        trace += e.what();
        if (depth < 4)
            throw std::logic_error(e.what());
    }
    return depth;
}

NOINLINE int nested_handlers(int n) {
    try {
        throw n;
    } catch (int a) {
        try {
            throw a + 1.5;
        } catch (double d) {
            try {
                if (n > 2) throw;
                return int(d);
            } catch (double again) {
                return a + int(again) * 10;
            }
        }
    }
}

struct Member { int value; explicit Member(int v) : value(v) { if (v == 3) throw v; trace += 'm'; } ~Member() { trace += 'M'; } };
struct Whole {
    Member a, b;
    std::vector<int> v;
    Member c;
    Whole(int x, int y, int z) try : a(x), b(y), v(10, 1), c(z) {} catch (int i) { trace += '!'; throw i + 1; }
};

NOINLINE void unwinding_through_library() {
    std::vector<int> numbers(200);
    for (int i = 0; i < 200; i++) numbers[i] = i * 7919 % 211;
    int left = 150;
    try {
        std::sort(numbers.begin(), numbers.end(), [&](int a, int b) { Guard g('s'); if (--left == 0) throw left; return a < b; });
    } catch (int) { trace += "sorted"; }
    try {
        std::for_each(numbers.begin(), numbers.end(), [](int n) { if (n == 100) throw std::string("hundred"); });
    } catch (const std::string &s) { trace += s; }
    std::map<int, std::function<int(int)>> table;
    table[1] = [](int x) -> int { throw std::out_of_range("f" + std::to_string(x)); };
    try { table[1](5); } catch (const std::out_of_range &e) { trace += e.what(); }
    try { table[2](5); } catch (const std::bad_function_call &) { trace += "empty"; }
    try { numbers.at(5000); } catch (const std::out_of_range &) { trace += "at"; }
    try { (void)std::stoi("nothing"); } catch (const std::invalid_argument &) { trace += "stoi"; }
    int count = 0;
    try { std::sort(numbers.begin(), numbers.end()); std::stable_sort(numbers.begin(), numbers.end(), [&](int a, int b) { if (++count == 9) throw 'q'; return a > b; }); }
    catch (char c) { trace += c; }
}

NOINLINE int saved() {
    std::exception_ptr kept;
    try { deep(5, 1); } catch (...) { kept = std::current_exception(); }
    try { std::rethrow_exception(kept); } catch (const std::runtime_error &e) { trace += e.what(); return 3; }
}

NOINLINE int nested_exception() {
    try {
        try { throw std::runtime_error("first"); }
        catch (...) { std::throw_with_nested(std::logic_error("second")); }
    } catch (const std::exception &e) {
        trace += e.what();
        try { std::rethrow_if_nested(e); } catch (const std::exception &f) { trace += f.what(); }
    }
    return 4;
}

/* Values in callee-saved registers and on realigned frames must be right in the handler. */
NOINLINE uint64_t registers(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    alignas(64) uint64_t block[8];
    for (int i = 0; i < 8; i++) block[i] = a * uint64_t(i) + b;
    uint64_t e = a ^ b, f = c + d, g = a - d, h = b * c;
    for (int kind = 0; kind < 8; kind++)
        try { raise(kind); }
        catch (const Base *p) { delete p; e++; }
        catch (...) { e = e * 31 + f; f ^= g; g += h + block[kind]; h = h << 1 | h >> 63; }
    return e ^ f ^ g ^ h ^ block[7];
}

int main() {
    for (int kind = 0; kind < 9; kind++) {
        int code = catching(kind);
        std::printf("%d: %d %s\n", kind, code, trace.c_str());
        trace.clear();
    }
    for (int n = 1; n < 40; n += 13)
        try { deep(n, n); } catch (const Base *p) { delete p; trace += '*'; } catch (...) { trace += '.'; }
    mix_bytes(trace.data(), trace.size());
    trace.clear();
    std::printf("%d\n", rethrowing(7));
    std::puts(trace.c_str());
    trace.clear();
    for (int n = 0; n < 5; n++) std::printf("%d ", nested_handlers(n));
    for (int i = 0; i < 4; i++)
        try { Whole w(i == 0 ? 3 : 1, i == 1 ? 3 : 2, i == 2 ? 3 : 4); trace += 'w'; } catch (int e) { trace += char('0' + e); }
    try { Member members[4] = {Member(1), Member(2), Member(3), Member(4)}; (void)members; } catch (int) { trace += "array"; }
    std::puts(trace.c_str());
    trace.clear();
    unwinding_through_library();
    mix_bytes(trace.data(), trace.size());
    std::puts(trace.substr(trace.size() - 30).c_str());
    trace.clear();
    std::printf("%d %d\n", saved(), nested_exception());
    std::puts(trace.c_str());
    trace.clear();
    mix(registers(1, 2, 3, 4));
    for (int i = 0; i < 300; i++)
        mix(uint64_t(catching(i)));
    report("exceptions");
    return 0;
}
