/* FFT: one dimension, m * m complex numbers, by rows and transposes (the six-step algorithm).
 *
 * Each node has m / n rows of the matrix, at home there. Rows are transformed in place; a transpose reads from all other nodes' rows, a
 * block of 64 bytes (four numbers) at a time. So all communication is in three transposes: each value crosses between nodes three times.
 * Source: Bailey, "FFTs in External or Hierarchical Memory" (1990); Woo et al., "The SPLASH-2 Programs" (1995), section 3.
 */
#include "kernel.h"
#include <math.h>

#define TILE 8

typedef struct {
    double re, im;
} number;

static uint64_t m;
static number **data, **other; /* rows */
static number *roots;          /* of m * m */

static number times(number a, number b) {
    return (number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

/* Rows of this node of `to` become columns of `from`, each node beginning with another peer. */
static void transpose(number **to, number **from, uint64_t first, uint64_t end) {
    for (unsigned k = 0; k < nodes; k++) {
        unsigned peer = (me + k) % nodes;
        uint64_t left = first_of(peer, m / TILE) * TILE, right = first_of(peer + 1, m / TILE) * TILE;
        for (uint64_t i = first; i < end; i += TILE)
            for (uint64_t j = left; j < right; j += TILE)
                for (uint64_t b = j; b < j + TILE; b++)
                    for (uint64_t a = i; a < i + TILE; a++)
                        to[a][b] = from[b][a];
    }
    bz_barrier();
}

/* A row, in place: bits reversed, then butterflies. */
static void transform(number *row) {
    for (uint64_t i = 0, j = 0; i < m; i++) {
        if (i < j) {
            number t = row[i];
            row[i] = row[j], row[j] = t;
        }
        uint64_t bit = m >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j |= bit;
    }
    for (uint64_t half = 1; half < m; half *= 2)
        for (uint64_t i = 0; i < m; i += 2 * half)
            for (uint64_t k = 0; k < half; k++) {
                number a = row[i + k], b = times(row[i + k + half], roots[k * (m / 2 / half) * m]);
                row[i + k] = (number){a.re + b.re, a.im + b.im};
                row[i + k + half] = (number){a.re - b.re, a.im - b.im};
            }
}

int main(int argc, char **argv) {
    uint64_t log2 = kernel_size(argc, argv, 9, 4, 12);
    m = (uint64_t)1 << log2;
    data = calloc(m, sizeof *data), other = calloc(m, sizeof *other), roots = malloc(m * m * sizeof *roots);
    if (!data || !other || !roots) return 1;
    for (unsigned node = 0; node < nodes; node++) {
        uint64_t from = first_of(node, m / TILE) * TILE, to = first_of(node + 1, m / TILE) * TILE;
        number *a = shared_by(node, 2 * node, (to - from) * m * sizeof *a);
        number *b = shared_by(node, 2 * node + 1, (to - from) * m * sizeof *b);
        for (uint64_t i = from; i < to; i++)
            data[i] = a + (i - from) * m, other[i] = b + (i - from) * m;
    }
    for (uint64_t k = 0; k < m * m; k++) {
        double angle = -2 * M_PI * (double)k / (double)(m * m);
        roots[k] = (number){cos(angle), sin(angle)};
    }
    const uint64_t first = first_of(me, m / TILE) * TILE, end = first_of(me + 1, m / TILE) * TILE;
    for (uint64_t i = first; i < end; i++)
        for (uint64_t j = 0; j < m; j++)
            data[i][j] = (number){(double)(mix(i * m + j) >> 11) * 0x1p-53, (double)(mix(~(i * m + j)) >> 11) * 0x1p-53};

    measure();
    transpose(other, data, first, end);
    for (uint64_t i = first; i < end; i++) {
        transform(other[i]);
        for (uint64_t j = 0; j < m; j++)
            other[i][j] = times(other[i][j], roots[i * j]);
    }
    bz_barrier();
    transpose(data, other, first, end);
    for (uint64_t i = first; i < end; i++)
        transform(data[i]);
    bz_barrier();
    transpose(other, data, first, end);
    measured("fft");

    uint64_t sum = 0;
    for (uint64_t i = first; i < end; i++)
        for (uint64_t j = 0; j < m; j++)
            sum += mix(bits_of(other[i][j].re) + mix(bits_of(other[i][j].im) + i * m + j));
    return finish("fft", sum);
}
