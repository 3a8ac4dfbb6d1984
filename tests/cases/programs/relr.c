//# flags: -O2
//# link: -pie -Wl,-z,pack-relative-relocs | -pie -Wl,-z,pack-relative-relocs -s | -pie -Wl,-z,pack-relative-relocs -Wl,-z,now
/* Relative relocations in a bitmap (DT_RELR): the only place that names functions which nothing calls directly. */
#include "arena.h"

#define F(n) static uint64_t f##n(uint64_t x) { return x * (2 * n + 3) + n; }
F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
struct entry { uint64_t (*function)(uint64_t); const char *name; uint64_t number; };
struct entry entries[] = {{f0, "zero", 0}, {f1, "one", 1}, {f2, "two", 2}, {f3, "three", 3},
                          {f4, "four", 4}, {f5, "five", 5}, {f6, "six", 6}, {f7, "seven", 7}};
uint64_t (*spread[400])(uint64_t) = {[1] = f1, [70] = f2, [71] = f3, [200] = f4, [399] = f5};

int main(void) {
    uint64_t value = 1;
    for (int round = 0; round < 100; round++) {
        for (unsigned i = 0; i < sizeof entries / sizeof *entries; i++)
            value = entries[i].function(value) + entries[i].number;
        for (int i = 0; i < 400; i++)
            if (spread[i])
                value ^= spread[i](value);
    }
    mix(value);
    printf("%s %s\n", entries[3].name, entries[7].name);
    report("packed relocations");
    return 0;
}
