// Exceptions of several types through frames with destructors, virtual calls, a switch: call sites, actions and type tables.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

struct Noisy {
    std::string name;
    ~Noisy() { if (name.size() > 3) std::printf("~%s\n", name.c_str()); }
};

struct Shape {
    virtual ~Shape() = default;
    virtual int area(int x) const = 0;
};
struct Square : Shape {
    int area(int x) const override { return x * x; }
};
struct Line : Shape {
    int area(int x) const override { if (x > 6) throw std::out_of_range("line"); return x; }
};

static int step(int i, const std::vector<int> &v) {
    Noisy n{std::string(i % 6, 'a' + i % 26)};
    switch (i) {
    case 0: return 7;
    case 1: return (int)n.name.size();
    case 2: throw i;
    case 3: throw std::runtime_error("three");
    case 4: throw "text";
    case 5: return v.at(i * 100);
    case 6: throw std::string("object");
    default: return i * v[i % v.size()];
    }
}

static int guarded(int i, const std::vector<int> &v) noexcept(false) {
    try {
        return step(i, v);
    } catch (const char *text) {
        std::puts(text);
        throw;
    } catch (const std::logic_error &e) {
        std::puts("logic");
        throw 11L;
    }
}

int main() {
    std::vector<int> v{3, 1, 4, 1, 5};
    Square square;
    Line line;
    const Shape *shapes[] = {&square, &line};
    int sum = 0;
    for (int i = 0; i < 10; i++) {
        try {
            sum += guarded(i, v);
            sum += shapes[i & 1]->area(i);
        } catch (const std::exception &e) {
            std::printf("exception %s\n", e.what());
        } catch (int k) {
            std::printf("int %d\n", k);
        } catch (const std::string &s) {
            std::printf("string %s\n", s.c_str());
        } catch (...) {
            std::puts("other");
        }
    }
    std::printf("%d\n", sum);
}
