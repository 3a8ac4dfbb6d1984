/* The kernels of the overhead benchmark: memory-bound loops, one per way of using memory.
 *
 * kernels NAME ROUNDS prints a checksum that depends on all of the work. With SHARED all data are shared memory. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef SHARED
#include <blizzard.h>
#endif

static uint64_t state = 88172645463325252u;

static uint32_t random32(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static void *array(size_t count, size_t bytes) {
#ifdef SHARED
    void *p = bz_alloc(count * bytes);
#else
    void *p = calloc(count, bytes);
#endif
    if (!p) {
        fputs("no memory\n", stderr);
        exit(1);
    }
    return p;
}

/* A linked list in random order of memory. */
struct cell {
    struct cell *next;
    uint64_t value;
};

static uint64_t list(long rounds) {
    enum { N = 1 << 15 };
    struct cell *cells = array(N, sizeof *cells);
    uint32_t *order = array(N, sizeof *order);
    for (uint32_t i = 0; i < N; i++) order[i] = i;
    for (uint32_t i = N - 1; i > 0; i--) {
        uint32_t j = random32() % (i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (uint32_t i = 0; i < N; i++) {
        cells[order[i]].next = i + 1 < N ? &cells[order[i + 1]] : NULL;
        cells[order[i]].value = i;
    }
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        for (struct cell *c = &cells[order[0]]; c; c = c->next) sum += c->value ^ (uint64_t)r;
    return sum;
}

/* Searches in a binary search tree. */
struct node {
    struct node *left, *right;
    uint32_t key, value;
};

static uint64_t tree(long rounds) {
    enum { N = 1 << 15 };
    struct node *nodes = array(N, sizeof *nodes), *root = NULL;
    for (uint32_t i = 0; i < N; i++) {
        struct node *n = &nodes[i], **at = &root;
        n->key = random32();
        n->value = i;
        while (*at) at = n->key < (*at)->key ? &(*at)->left : &(*at)->right;
        *at = n;
    }
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++)
        for (uint32_t i = 0; i < N; i++) {
            uint32_t key = random32();
            struct node *n = root, *last = root;
            while (n) {
                last = n;
                n = key < n->key ? n->left : n->right;
            }
            sum += last->value;
        }
    return sum;
}

/* y = A x, A sparse by rows. */
static uint64_t spmv(long rounds) {
    enum { N = 4096, PER_ROW = 16 };
    uint32_t *start = array(N + 1, sizeof *start), *column = array(N * PER_ROW, sizeof *column);
    double *value = array(N * PER_ROW, sizeof *value), *x = array(N, sizeof *x), *y = array(N, sizeof *y);
    for (uint32_t i = 0, k = 0; i < N; i++) {
        for (int j = 0; j < PER_ROW; j++, k++) {
            column[k] = random32() % N;
            value[k] = (random32() % 1000) / 8000.0;
        }
        start[i + 1] = k;
        x[i] = 1.0 + i % 7;
    }
    for (long r = 0; r < rounds; r++) {
        for (uint32_t i = 0; i < N; i++) {
            double sum = 0;
            for (uint32_t k = start[i]; k < start[i + 1]; k++) sum += value[k] * x[column[k]];
            y[i] = sum;
        }
        double *t = x;
        x = y;
        y = t;
    }
    double sum = 0;
    for (uint32_t i = 0; i < N; i++) sum += x[i];
    return (uint64_t)(sum * 1e6);
}

/* Five-point stencil, one element at a time. */
#define STENCIL_BODY                                                                                    \
    enum { W = 512, H = 256 };                                                                          \
    float *a = array(W * H, sizeof *a), *b = array(W * H, sizeof *b);                                   \
    for (int i = 0; i < W * H; i++) a[i] = (float)(random32() % 100);                                   \
    for (long r = 0; r < rounds; r++) {                                                                 \
        for (int y = 1; y < H - 1; y++)                                                                 \
            for (int x = 1; x < W - 1; x++)                                                             \
                b[y * W + x] = 0.2f * (a[y * W + x] + a[y * W + x - 1] + a[y * W + x + 1] + a[(y - 1) * W + x] + \
                                       a[(y + 1) * W + x]);                                             \
        float *t = a;                                                                                   \
        a = b;                                                                                          \
        b = t;                                                                                          \
    }                                                                                                   \
    double sum = 0;                                                                                     \
    for (int i = 0; i < W * H; i++) sum += a[i];                                                        \
    return (uint64_t)(sum * 16);

#ifdef __clang__
static uint64_t stencil(long rounds) { STENCIL_BODY }
#else
__attribute__((optimize("no-tree-vectorize"))) static uint64_t stencil(long rounds) { STENCIL_BODY }
#endif

/* The same, left to the vectoriser. */
#ifndef __clang__
__attribute__((optimize("O3")))
#endif
static uint64_t
stencil_simd(long rounds) {
    STENCIL_BODY
}

/* Insertions into and look-ups in a hash table with open addressing. */
static uint64_t hash(long rounds) {
    enum { SLOTS = 1 << 15 };
    uint64_t *keys = array(SLOTS, sizeof *keys), *values = array(SLOTS, sizeof *values), found = 0;
    for (long r = 0; r < rounds; r++) {
        memset(keys, 0, SLOTS * sizeof *keys);
        for (int i = 0; i < SLOTS / 2; i++) {
            uint64_t key = random32() % SLOTS + 1, at = key * 0x9e3779b97f4a7c15u >> 49;
            while (keys[at] && keys[at] != key) at = (at + 1) % SLOTS;
            keys[at] = key;
            values[at] += (uint64_t)i;
        }
        for (uint64_t key = 1; key <= SLOTS; key++) {
            uint64_t at = key * 0x9e3779b97f4a7c15u >> 49;
            while (keys[at] && keys[at] != key) at = (at + 1) % SLOTS;
            if (keys[at]) found += values[at];
        }
    }
    return found;
}

static void sort(int32_t *low, int32_t *high) {
    while (high - low > 1) {
        int32_t pivot = low[(high - low) / 2], *i = low, *j = high - 1;
        for (;;) {
            while (*i < pivot) i++;
            while (pivot < *j) j--;
            if (i >= j) break;
            int32_t t = *i;
            *i++ = *j;
            *j-- = t;
        }
        if (i - low < high - i) {
            sort(low, i);
            low = i;
        } else {
            sort(i, high);
            high = i;
        }
    }
}

static uint64_t quicksort(long rounds) {
    enum { N = 1 << 14 };
    int32_t *v = array(N, sizeof *v);
    uint64_t sum = 0;
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < N; i++) v[i] = (int32_t)random32();
        sort(v, v + N);
        for (int i = 1; i < N; i++) sum += v[i - 1] <= v[i];
        sum += (uint32_t)v[N / 3];
    }
    return sum;
}

struct body {
    double x, y, z, vx, vy, vz, mass;
};

/* All pairs of a few hundred bodies. */
static uint64_t nbody(long rounds) {
    enum { N = 128 };
    struct body *b = array(N, sizeof *b);
    for (int i = 0; i < N; i++)
        b[i] = (struct body){random32() % 1000, random32() % 1000, random32() % 1000, 0, 0, 0, 1 + random32() % 9};
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < N; i++)
            for (int j = i + 1; j < N; j++) {
                double dx = b[i].x - b[j].x, dy = b[i].y - b[j].y, dz = b[i].z - b[j].z;
                double d2 = dx * dx + dy * dy + dz * dz + 1.0, f = 0.01 / (d2 * d2);
                b[i].vx -= dx * b[j].mass * f;
                b[i].vy -= dy * b[j].mass * f;
                b[i].vz -= dz * b[j].mass * f;
                b[j].vx += dx * b[i].mass * f;
                b[j].vy += dy * b[i].mass * f;
                b[j].vz += dz * b[i].mass * f;
            }
        for (int i = 0; i < N; i++) {
            b[i].x += b[i].vx;
            b[i].y += b[i].vy;
            b[i].z += b[i].vz;
        }
    }
    double sum = 0;
    for (int i = 0; i < N; i++) sum += b[i].x + b[i].y + b[i].z;
    return (uint64_t)sum;
}

/* Horspool's search for a short pattern. */
static uint64_t search(long rounds) {
    enum { N = 1 << 18, M = 5 };
    unsigned char *text = array(N + 1, 1);
    for (int i = 0; i < N; i++) text[i] = "abcd"[random32() % 4];
    uint64_t found = 0;
    for (long r = 0; r < rounds; r++) {
        unsigned char pattern[M];
        size_t skip[256];
        for (int i = 0; i < M; i++) pattern[i] = "abcd"[random32() % 4];
        for (int c = 0; c < 256; c++) skip[c] = M;
        for (int i = 0; i < M - 1; i++) skip[pattern[i]] = (size_t)(M - 1 - i);
        for (size_t at = 0; at + M <= N; at += skip[text[at + M - 1]]) {
            int i = M - 1;
            while (i >= 0 && text[at + (size_t)i] == pattern[i]) i--;
            found += i < 0;
        }
    }
    return found;
}

static uint64_t histogram(long rounds) {
    enum { N = 1 << 18 };
    unsigned char *data = array(N, 1);
    uint32_t *bins = array(256, sizeof *bins);
    for (int i = 0; i < N; i++) data[i] = (unsigned char)(random32() & random32());
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < N; i++) bins[data[i]]++;
    uint64_t sum = 0;
    for (int i = 0; i < 256; i++) sum = sum * 31 + bins[i];
    return sum;
}

static uint64_t matmul(long rounds) {
    enum { N = 96 };
    double *a = array(N * N, sizeof *a), *b = array(N * N, sizeof *b), *c = array(N * N, sizeof *c);
    for (int i = 0; i < N * N; i++) {
        a[i] = random32() % 10;
        b[i] = random32() % 10;
    }
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0;
                for (int k = 0; k < N; k++) sum += a[i * N + k] * b[k * N + j];
                c[i * N + j] += sum;
            }
    double sum = 0;
    for (int i = 0; i < N * N; i++) sum += c[i];
    return (uint64_t)sum;
}

static const struct {
    const char *name;
    uint64_t (*run)(long);
} kernels[] = {
    {"list", list},           {"tree", tree},   {"spmv", spmv},           {"stencil", stencil},
    {"stencil-simd", stencil_simd}, {"hash", hash},   {"quicksort", quicksort}, {"nbody", nbody},
    {"search", search},       {"histogram", histogram}, {"matmul", matmul},
};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 3 && i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(argv[1], kernels[i].name)) {
            printf("%s %llu\n", argv[1], (unsigned long long)kernels[i].run(atol(argv[2])));
            return 0;
        }
    fputs("usage: kernels NAME ROUNDS\n", stderr);
    return 2;
}
