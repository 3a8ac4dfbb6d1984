//# flags: -O0 | -O1 | -O2 | -O3 | -Os
//# link: -pie | -no-pie | -pie -s
/* Unusual frames: alloca, variable-length arrays, over-aligned locals, vectors on the stack, many arguments, variadic
 * functions with all kinds of arguments, structures by value in and out, nested functions are left to the compilers. */
#include "arena.h"
#include <alloca.h>
#include <stdarg.h>

#define NOINLINE __attribute__((noinline))
typedef float vector8 __attribute__((vector_size(32)));
typedef int vector4 __attribute__((vector_size(16)));
struct small { int a; char b; };
struct medium { double x; long y; };
struct large { uint64_t v[9]; };

NOINLINE static uint64_t with_alloca(int n) {
    unsigned char *p = (unsigned char *)alloca((size_t)n);
    for (int i = 0; i < n; i++)
        p[i] = (unsigned char)(i * n);
    uint64_t sum = 0;
    for (int i = n; i-- > 0;)
        sum = sum * 31 + p[i];
    if (n > 1)
        sum += with_alloca(n / 2);
    return sum + p[n - 1];
}

NOINLINE static uint64_t with_vla(int n, int m) {
    int grid[n][m];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            grid[i][j] = i * j - n;
    uint64_t sum = 0;
    for (int k = 0; k < 3; k++) {
        short row[m + k];
        for (int j = 0; j < m + k; j++)
            row[j] = (short)(j + k);
        for (int j = 0; j < m; j++)
            sum += (uint64_t)(grid[j % n][j] * row[j]);
    }
    return sum;
}

NOINLINE static uint64_t realigned(int n) {
    uint64_t block[8] __attribute__((aligned(64)));
    unsigned char page[256] __attribute__((aligned(256)));
    for (int i = 0; i < 8; i++)
        block[i] = (uint64_t)(i * n);
    for (int i = 0; i < 256; i++)
        page[i] = (unsigned char)(i + n);
    EXPECT(((uintptr_t)block & 63) == 0 && ((uintptr_t)page & 255) == 0, "alignment");
    uint64_t sum = 0;
    for (int i = 0; i < 256; i++)
        sum += page[(i * 7) & 255] * block[i & 7];
    return sum;
}

NOINLINE static vector8 vectors(vector8 a, vector8 b, int n) {
    vector8 keep[4];
    for (int i = 0; i < 4; i++)
        keep[i] = a * (float)(i + 1) - b;
    vector8 sum = keep[n & 3];
    for (int i = 0; i < 4; i++)
        sum += keep[i];
    return sum;
}

NOINLINE static struct small make_small(int i) { struct small s = {i, (char)(i + 1)}; return s; }
NOINLINE static struct medium make_medium(int i) { struct medium s = {i * 0.5, i * 3L}; return s; }
NOINLINE static struct large make_large(int i) {
    struct large s;
    for (int k = 0; k < 9; k++)
        s.v[k] = (uint64_t)(i * k + 1);
    return s;
}
NOINLINE static uint64_t take(struct small s, struct large l, struct medium m, struct large l2) {
    return (uint64_t)(s.a + s.b) + l.v[3] * 7 + (uint64_t)(m.x * 8) + (uint64_t)m.y + l2.v[8];
}
NOINLINE static __int128 wide(__int128 a, __int128 b) { return a * b + (a >> 3); }
NOINLINE static long double extended(long double a, double b, float c) { return a * b + c; }

NOINLINE static uint64_t variadic(const char *kinds, ...) {
    va_list list, copy;
    va_start(list, kinds);
    va_copy(copy, list);
    uint64_t sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (const char *k = kinds; *k; k++) {
            sum = sum * 31;
            switch (*k) {
            case 'i': sum += (uint64_t)(pass ? va_arg(copy, int) : va_arg(list, int)); break;
            case 'l': sum += pass ? va_arg(copy, uint64_t) : va_arg(list, uint64_t); break;
            case 'd': sum += (uint64_t)(pass ? va_arg(copy, double) : va_arg(list, double)); break;
            case 'x': sum += (uint64_t)(pass ? va_arg(copy, long double) : va_arg(list, long double)); break;
            case 's': sum += (uint64_t)(pass ? va_arg(copy, struct medium) : va_arg(list, struct medium)).y; break;
            case 'b': sum += (pass ? va_arg(copy, struct large) : va_arg(list, struct large)).v[4]; break;
            }
        }
    va_end(copy);
    va_end(list);
    return sum;
}
NOINLINE static int formatted(char *to, size_t size, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(to, size, format, list);
    va_end(list);
    return n;
}

int main(void) {
    for (int i = 1; i < 60; i += 7) {
        mix(with_alloca(i * 100));
        mix(with_vla(i, i + 3));
        mix(realigned(i));
        vector8 a = {1, 2, 3, 4, 5, 6, 7, (float)i}, r = vectors(a, a * 0.5f, i);
        mix_bytes(&r, sizeof r);
        mix(take(make_small(i), make_large(i), make_medium(i), make_large(i * 2)));
        __int128 w = wide((__int128)i << 70, i);
        mix((uint64_t)(w >> 64)), mix((uint64_t)w);
        mix((uint64_t)(extended(i, 2.5, 1.25f) * 100));
        mix(variadic("ildxsbidddddddddlllls", i, (uint64_t)i << 40, i * 1.5, (long double)i, make_medium(i), make_large(i), 1, 1.0, 2.0,
                     3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1ul, 2ul, 3ul, 4ul, make_medium(7)));
        char text[100];
        mix((uint64_t)formatted(text, sizeof text, "%d %s %g %Lg %c %lx", i, "text", i / 3.0, (long double)i, 'c', 255ul + i));
        puts(text);
    }
    report("frames");
    return case_result();
}
