// Every form of call site and action that a C++ compiler emits: catches by type and by value, catch-all, cleanups, nesting,
// rethrow, function try blocks, exception specifications, noexcept, unlikely (split-off) handlers, large frames, alloca,
// switch tables beside landing pads.
#include <alloca.h>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

struct Trace {
    const char *name;
    explicit Trace(const char *n) : name(n) { std::printf("+%s ", name); }
    ~Trace() { std::printf("-%s ", name); }
};

struct Base { virtual ~Base() {} int code = 1; };
struct Derived : Base { Derived() { code = 2; } };
struct Other { char big[300]; };

__attribute__((noinline)) int thrower(int kind) {
    Trace t("thrower");
    switch (kind) {
    case 0: return 10;
    case 1: throw 42;
    case 2: throw std::runtime_error("runtime");
    case 3: throw Derived();
    case 4: throw Other();
    case 5: throw "text";
    case 6: throw std::string("a string that does not fit into the object itself");
    case 7: throw 2.5;
    default: throw static_cast<Base *>(nullptr);
    }
}

__attribute__((noinline)) int through(int kind) {
    Trace a("a");
    std::string s(static_cast<size_t>(kind) + 40, 'x');
    Trace b("b");
    return thrower(kind) + static_cast<int>(s.size());
}

__attribute__((noinline)) int frames(int kind, int n) {
    char *p = static_cast<char *>(alloca(static_cast<size_t>(n) * 16 + 1));
    std::memset(p, kind, static_cast<size_t>(n) * 16 + 1);
    volatile char large[5000];
    large[n] = p[n];
    Trace t("frames");
    return n > 0 ? frames(kind, n - 1) + large[n] - p[n] : through(kind);
}

#if __cplusplus < 201703L
int only_int(int kind) throw(int, std::runtime_error) { return through(kind); }
int nothing(int kind) throw() { return kind == 0 ? through(kind) : -1; }
#else
int only_int(int kind) { return through(kind); }
int nothing(int kind) noexcept { return kind == 0 ? through(kind) : -1; }
#endif

struct Member {
    int v;
    explicit Member(int kind) try : v(through(kind)) {
    } catch (int i) {
        std::printf("member %d ", i);
        throw;
    }
};

__attribute__((noinline)) int dispatch(int kind) {
    try {
        try {
            Trace t("try");
            if (kind % 3 == 0) return frames(kind, 3);
            if (kind % 3 == 1) return only_int(kind);
            Member m(kind);
            return m.v + nothing(0);
        } catch (const Base &b) {
            std::printf("base %d ", b.code);
            if (b.code == 2) throw;
            return -1;
        } catch (double d) {
            std::printf("double %g ", d);
            throw static_cast<int>(d);
        }
    } catch (int i) {
        return i;
    } catch (const std::exception &e) {
        std::printf("exception %s ", e.what());
        return -2;
    } catch (const char *s) {
        return static_cast<int>(std::strlen(s));
    } catch (std::string s) {
        return static_cast<int>(s.size());
    } catch (...) {
        std::printf("other ");
        try {
            throw;
        } catch (Derived &d) {
            return d.code;
        } catch (...) {
            return -3;
        }
    }
}

int main() {
    for (int round = 0; round < 3; round++) {
        for (int kind = 0; kind < 9; kind++) {
            if (kind % 3 == 1 && kind != 1) continue;
            std::printf("= %d\n", dispatch(kind));
        }
    }
    return 0;
}
