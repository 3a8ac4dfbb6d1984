#include "across.h"
#include <cstdio>
Failure::Failure(int code, const std::string &what) : std::runtime_error(what), code(code) {}
Failure::~Failure() {}
Visitor::~Visitor() {}
struct Trace {
    int n;
    ~Trace() { printf("library leaves %d\n", n); }
};
int walk(int n, Visitor &visitor) {
    Trace trace{n};
    if (n > 6)
        throw Failure(n, "too deep in the library");
    return visitor.visit(n) + 1;
}
int guarded(int n, Visitor &visitor) {
    try {
        return walk(n, visitor);
    } catch (const std::logic_error &e) {
        printf("library caught %s\n", e.what());
        throw Failure(100, std::string("translated: ") + e.what());
    }
}
