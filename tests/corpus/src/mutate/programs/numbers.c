/* Loads, stores, a switch, strings, flags across accesses, a call through a pointer, setjmp: what the rewriter's C code has sequences for. */
#include <immintrin.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct item {
    long key;
    int weight;
    char name[20];
};

static int by_key(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static int heavier(const struct item *x, int than) { return x->weight > than; }
static int lighter(const struct item *x, int than) { return x->weight < than; }

static long steps(const char *text) {
    long value = 0;
    for (; *text; text++) {
        switch (*text) {
        case 'a': value += 3; break;
        case 'b': value *= 2; break;
        case 'c': value -= 5; break;
        case 'd': value ^= 0x55; break;
        case 'e': value <<= 1; break;
        case 'f': value += *text; break;
        case 'g': value /= 3; break;
        default: value = -value;
        }
    }
    return value;
}

__attribute__((target("avx2"), noinline)) static long gathered(const int *from) {
    __m256i at = _mm256_setr_epi32(1, 7, 3, 0, 5, 2, 6, 4), got = _mm256_i32gather_epi32(from, at, 4);
    int to[8];
    _mm256_storeu_si256((__m256i *)to, got);
    return to[0] * 3 + to[7];
}

static long alone(const int *from) { return from[1] * 3 + from[4]; }

static jmp_buf back;

static void deep(int n, int *cells) {
    cells[n % 8] += n;
    if (n == 0)
        longjmp(back, 7);
    deep(n - 1, cells);
}

int main(int argc, char **argv) {
    int count = 40 + argc;
    struct item *items = malloc(count * sizeof *items);
    int (*tests[2])(const struct item *, int) = {heavier, lighter};
    for (int i = 0; i < count; i++) {
        items[i].key = (i * 7919) % 101;
        items[i].weight = i ^ 21;
        snprintf(items[i].name, sizeof items[i].name, "item%d", i);
    }
    qsort(items, count, sizeof *items, by_key);
    long sum = 0;
    double mean = 0;
    for (int i = 0; i < count; i++) {
        sum += tests[i & 1](&items[i], 20) ? items[i].key : -1;
        mean += items[i].weight / 4.0;
    }
    char *text = calloc(1, 64);
    memcpy(text, "abcdefgh", 8);
    memset(text + 8, 'b', 3);
    int cells[8] = {0};
    const void *source = text;
    void *target = text + 32;
    size_t left = 9;
    __asm__ volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(left) : : "memory");
    int caught = setjmp(back);
    if (!caught)
        deep(25, cells);
    sum += __builtin_cpu_supports("avx2") ? gathered(&items->weight) : alone(&items->weight);
    printf("%ld %.2f %ld %d %d %s %s %s\n", sum, mean, steps(text), caught, cells[1], items[3].name, text + 32, argv[argc] ? "?" : "end");
    free(text);
    free(items);
    return 0;
}
