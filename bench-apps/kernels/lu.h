/* LU: a dense matrix of doubles becomes a lower and an upper triangular one, without pivots, in blocks of 16 x 16.
 *
 * Blocks belong to nodes in turn, in both directions. A step: the diagonal block; the blocks beside and below it; all others, each from two of those.
 * A barrier stands behind each. `CONTIGUOUS`: each block is one piece of memory, at home at its owner. Otherwise the matrix is one array by rows, whose
 * pages have their homes by turn, and a row of a block is two cache lines.
 * Source: Woo et al., "The SPLASH-2 Programs" (1995), section 3 (both forms).
 */
#include "kernel.h"

#define B 16u

static uint64_t blocks; /* in each direction */
static double *matrix, **pieces;
static unsigned down, across; /* nodes = down * across */

static unsigned owner(uint64_t i, uint64_t j) { return (unsigned)(i % down * across + j % across); }

/* A block and the distance of its rows. */
static double *block(uint64_t i, uint64_t j) {
    return CONTIGUOUS ? pieces[i * blocks + j] : matrix + (i * B * blocks + j) * B;
}
#define ROW (CONTIGUOUS ? B : blocks * B)

static void diagonal(double *a) {
    for (unsigned k = 0; k < B; k++)
        for (unsigned i = k + 1; i < B; i++) {
            a[i * ROW + k] /= a[k * ROW + k];
            for (unsigned j = k + 1; j < B; j++)
                a[i * ROW + j] -= a[i * ROW + k] * a[k * ROW + j];
        }
}

/* a becomes a / upper(d). */
static void below(double *a, const double *d) {
    for (unsigned k = 0; k < B; k++)
        for (unsigned i = 0; i < B; i++) {
            a[i * ROW + k] /= d[k * ROW + k];
            for (unsigned j = k + 1; j < B; j++)
                a[i * ROW + j] -= a[i * ROW + k] * d[k * ROW + j];
        }
}

/* a becomes lower(d) \ a. */
static void beside(double *a, const double *d) {
    for (unsigned k = 0; k < B; k++)
        for (unsigned i = k + 1; i < B; i++)
            for (unsigned j = 0; j < B; j++)
                a[i * ROW + j] -= d[i * ROW + k] * a[k * ROW + j];
}

static void inner(double *restrict a, const double *l, const double *u) {
    for (unsigned i = 0; i < B; i++)
        for (unsigned k = 0; k < B; k++) {
            const double factor = l[i * ROW + k];
            for (unsigned j = 0; j < B; j++)
                a[i * ROW + j] -= factor * u[k * ROW + j];
        }
}

int main(int argc, char **argv) {
    blocks = kernel_size(argc, argv, 512, B, 4096) / B;
    down = 1;
    for (unsigned k = 2; k * k <= nodes; k++)
        if (nodes % k == 0) down = k;
    across = nodes / down;
    if (CONTIGUOUS) {
        pieces = calloc(blocks * blocks, sizeof *pieces);
        double **each = calloc(nodes, sizeof *each);
        if (!pieces || !each) return 1;
        const size_t bytes = ((blocks + down - 1) / down) * ((blocks + across - 1) / across) * B * B * sizeof(double);
        for (unsigned node = 0; node < nodes; node++)
            each[node] = shared_by(node, node, bytes);
        for (uint64_t i = 0; i < blocks; i++)
            for (uint64_t j = 0; j < blocks; j++) {
                pieces[i * blocks + j] = each[owner(i, j)];
                each[owner(i, j)] += B * B;
            }
        free(each);
    } else {
        if (me == 0) bz_publish(0, bz_alloc(blocks * blocks * B * B * sizeof(double)));
        if (!(matrix = bz_lookup(0))) return 1;
    }
    for (uint64_t i = 0; i < blocks; i++)
        for (uint64_t j = 0; j < blocks; j++)
            if (owner(i, j) == me)
                for (uint64_t k = 0; k < B * B; k++) {
                    uint64_t row = i * B + k / B, column = j * B + k % B;
                    double value = (double)(mix(row << 32 | column) >> 11) * 0x1p-53;
                    block(i, j)[k / B * ROW + k % B] = row == column ? value + (double)(blocks * B) : value;
                }

    measure();
    for (uint64_t k = 0; k < blocks; k++) {
        if (owner(k, k) == me) diagonal(block(k, k));
        bz_barrier();
        for (uint64_t i = k + 1; i < blocks; i++) {
            if (owner(i, k) == me) below(block(i, k), block(k, k));
            if (owner(k, i) == me) beside(block(k, i), block(k, k));
        }
        bz_barrier();
        for (uint64_t i = k + 1; i < blocks; i++)
            for (uint64_t j = k + 1; j < blocks; j++)
                if (owner(i, j) == me) inner(block(i, j), block(i, k), block(k, j));
        bz_barrier();
    }
    measured(NAME);

    uint64_t sum = 0;
    for (uint64_t i = 0; i < blocks; i++)
        for (uint64_t j = 0; j < blocks; j++)
            if (owner(i, j) == me)
                for (uint64_t k = 0; k < B * B; k++)
                    sum += mix(bits_of(block(i, j)[k / B * ROW + k % B]) + mix((i * blocks + j) * B * B + k));
    return finish(NAME, sum);
}
