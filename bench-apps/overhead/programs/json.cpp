// A JSON parser as people write them in C++: recursive descent into values with strings, vectors and maps.
// Makes a document, then parses and sums it as often as the argument says.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

struct Value;
using Array = std::vector<Value>;
using Object = std::map<std::string, Value>;

struct Value {
    std::variant<std::nullptr_t, bool, double, std::string, std::shared_ptr<Array>, std::shared_ptr<Object>> is = nullptr;
};

class Parser {
  public:
    explicit Parser(const std::string &text) : at_(text.data()), end_(text.data() + text.size()) {}

    Value document() {
        Value v = value();
        space();
        if (at_ != end_) fail("more than one value");
        return v;
    }

  private:
    [[noreturn]] static void fail(const char *why) { throw std::runtime_error(why); }

    void space() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) at_++;
    }

    char next() {
        if (at_ == end_) fail("the text ends early");
        return *at_++;
    }

    bool take(char c) {
        space();
        if (at_ == end_ || *at_ != c) return false;
        at_++;
        return true;
    }

    void expect(const char *word) {
        for (; *word; word++)
            if (next() != *word) fail("unknown word");
    }

    std::string string() {
        std::string s;
        for (char c; (c = next()) != '"';) {
            if (c == '\\') {
                c = next();
                if (c == 'n') c = '\n';
                else if (c == 't') c = '\t';
                else if (c != '"' && c != '\\' && c != '/') fail("unknown escape");
            }
            s += c;
        }
        return s;
    }

    Value value() {
        space();
        switch (char c = next()) {
        case 'n': expect("ull"); return {};
        case 't': expect("rue"); return {true};
        case 'f': expect("alse"); return {false};
        case '"': return {string()};
        case '[': {
            auto a = std::make_shared<Array>();
            if (!take(']')) {
                do a->push_back(value());
                while (take(','));
                if (!take(']')) fail("no end of an array");
            }
            return {std::move(a)};
        }
        case '{': {
            auto o = std::make_shared<Object>();
            if (!take('}')) {
                do {
                    if (!take('"')) fail("no name");
                    std::string name = string();
                    if (!take(':')) fail("no colon");
                    (*o)[std::move(name)] = value();
                } while (take(','));
                if (!take('}')) fail("no end of an object");
            }
            return {std::move(o)};
        }
        default: {
            bool negative = c == '-';
            if (negative) c = next();
            if (c < '0' || c > '9') fail("unknown value");
            double n = c - '0', scale = 1;
            while (at_ != end_ && *at_ >= '0' && *at_ <= '9') n = n * 10 + (*at_++ - '0');
            if (at_ != end_ && *at_ == '.')
                for (at_++; at_ != end_ && *at_ >= '0' && *at_ <= '9'; at_++) n += (*at_ - '0') * (scale /= 10);
            return {negative ? -n : n};
        }
        }
    }

    const char *at_, *end_;
};

static double sum(const Value &v) {
    double total = 0;
    if (auto *n = std::get_if<double>(&v.is)) return *n;
    if (auto *s = std::get_if<std::string>(&v.is)) return static_cast<double>(s->size());
    if (auto *a = std::get_if<std::shared_ptr<Array>>(&v.is))
        for (auto &e : **a) total += sum(e);
    if (auto *o = std::get_if<std::shared_ptr<Object>>(&v.is))
        for (auto &e : **o) total += static_cast<double>(e.first.size()) + sum(e.second);
    return total;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
    std::string text = "[";
    for (int i = 0; i < 4000; i++) {
        char record[200];
        std::snprintf(record, sizeof record,
                      "%s{\"id\": %d, \"name\": \"user \\\"%d\\\"\", \"scores\": [%d, -%d.5, %d], \"active\": %s, \"note\": null}",
                      i ? ", " : "", i, i * 7919 % 4000, i % 10, i % 77, i % 31, i % 3 ? "true" : "false");
        text += record;
    }
    text += "]";
    double total = 0;
    for (int r = 0; r < rounds; r++) total += sum(Parser(text).document());
    std::printf("%.1f\n", total);
    try {
        Parser("[1, 2").document();
        return 1;
    } catch (const std::runtime_error &e) {
        std::printf("%s\n", e.what());
    }
}
