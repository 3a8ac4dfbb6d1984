/* Appbt: a block-tridiagonal solver on a dense three-dimensional array, as codes for the flow of fluids have it. What all forms have in common.
 *
 * Each cell of a cube has five values. An iteration computes how far they are from balance, from the six neighbours of each cell. Then it solves a system of equations
 * along each line of cells in x, then y, then z: one block of 5 x 5 numbers for a cell and each of its two neighbours on the line. Elimination goes up
 * a line, substitution comes down. The solution is added to the values.
 * Source: Reinhardt, "Mechanisms for Distributed Shared Memory" (1996), section 2.4.2.
 *
 * Each run node owns a block of the cube. Where a line crosses blocks, elimination gets 30 numbers of the block below, substitution 5 of the block above. The lines
 * of a row cross together: while a row is at the next block, this one does the next row.
 *
 * Each line is computed in the same order whoever does it. Thus the checksum, which is taken over the bits of all values, is the same for any number of run
 * nodes and for the plain program.
 *
 * Standard output: two lines, from node 0, that depend on the options only. Standard error: one line with the time of the iterations.
 */
#define APPLICATION "appbt"
#include "../common.h"

enum { X, Y, Z, DIMENSIONS };
enum { VALUES = 5, BLOCK = VALUES * VALUES };
/* Elimination, and substitution. */
enum { UP, DOWN, WAYS };
/* Doubles that cross with a line. */
static const size_t crossing[WAYS] = {BLOCK + VALUES, VALUES};
#define STEP 0.5
#define COUPLING 0.1

static struct {
    int side;
    uint64_t iters;
} opt = {32, 5};

/* Run nodes along each dimension; the place of this one among them, and the cells that it owns. */
static int parts[DIMENSIONS], place[DIMENSIONS], from[DIMENSIONS], to[DIMENSIONS];
/* The dimensions in which a row of lines lies, and the lines of a row. */
static const int row_of[DIMENSIONS] = {Z, Z, Y}, line_of[DIMENSIONS] = {Y, X, X};
/* Of own cells: what is to be added to their values, and what elimination has left of each for substitution. */
static double *change, *eliminated;
static double coupling[BLOCK];

/* ---- The form ---- */

/* Of all cells, by z, y, x: the own ones, and when `updated` has returned, the neighbours of own ones. */
static double *values;
/* What has crossed and will cross, by way and dimension. */
static double *crossings[WAYS][DIMENSIONS];

/* Memory for the above, zero. */
static void make(void);
/* Waits for what crosses to this run node with a row of lines; says that what crosses from it is there. */
static void wait_for_row(int way, int dimension, int row);
static void row_is_done(int way, int dimension, int row);
/* Own values are new. */
static void updated(void);

/* ---- Who has what ---- */

static size_t cells(void) { return (size_t)opt.side * (size_t)opt.side * (size_t)opt.side; }
static int begin_of(int dimension, int part) { return opt.side * part / parts[dimension]; }

/* The dimension with the longest parts is cut, z before y before x, until there is a part for each run node. */
static void divide(void) {
    unsigned left = run_nodes();
    for (int d = 0; d < DIMENSIONS; d++) parts[d] = 1;
    for (unsigned prime = 2; left > 1;) {
        if (left % prime) {
            prime++;
            continue;
        }
        int d = parts[Z] <= parts[Y] && parts[Z] <= parts[X] ? Z : parts[Y] <= parts[X] ? Y : X;
        parts[d] *= (int)prime;
        left /= prime;
    }
    unsigned number = self();
    for (int d = 0; d < DIMENSIONS; d++) {
        if (parts[d] > opt.side) {
            if (self() == 0) fprintf(stderr, "appbt: %u run nodes are too many for %d cells each way\n", run_nodes(), opt.side);
            exit(2);
        }
        place[d] = (int)(number % (unsigned)parts[d]);
        number /= (unsigned)parts[d];
        from[d] = begin_of(d, place[d]);
        to[d] = begin_of(d, place[d] + 1);
    }
}

/* Whether there is a part below or above in a dimension. */
static int has_below(int d) { return place[d] > 0; }
static int has_above(int d) { return place[d] + 1 < parts[d]; }

/* Of a cell, in doubles for each value. */
static size_t stride(int d) { return d == X ? 1 : d == Y ? (size_t)opt.side : (size_t)opt.side * (size_t)opt.side; }
static size_t own_stride(int d) {
    size_t x = (size_t)(to[X] - from[X]), y = (size_t)(to[Y] - from[Y]);
    return d == X ? 1 : d == Y ? x : x * y;
}
/* Doubles of a row of crossing lines, in whole kilobytes. */
static size_t row_doubles(int way) { return ((size_t)opt.side * crossing[way] + 127) / 128 * 128; }
static size_t crossing_doubles(int way, int d) { return (size_t)(parts[d] - 1) * (size_t)opt.side * row_doubles(way); }
/* What crosses between a part and the one above it. */
static double *crossing_at(int way, int d, int below, int row, int line) {
    return crossings[way][d] + ((size_t)below * (size_t)opt.side + (size_t)row) * row_doubles(way) + (size_t)line * crossing[way];
}

/* In [-1, 1). */
static double random_of(uint64_t what) { return (double)(mix(what) >> 11) * 0x1p-52 - 1; }

/* ---- Equations ---- */

/* Loops over five, written out: compilers leave them as they are at -O2. */
#define EACH(i, from) _Pragma("GCC unroll 5") for (int i = from; i < VALUES; i++)

/* b = diagonal on the diagonal, plus factor times what couples the values of a cell. */
static inline void make_block(double b[BLOCK], double diagonal, double factor, const double *cell) {
    double v[VALUES];
    EACH(k, 0) v[k] = cell[k] * factor;
    EACH(i, 0) EACH(k, 0) b[i * VALUES + k] = coupling[i * VALUES + k] * v[k];
    EACH(i, 0) b[i * VALUES + i] += diagonal;
}

/* Solves b x = c and b y = r in place, without a search for pivots: the diagonal is the largest. */
static inline void solve(double b[BLOCK], double c[BLOCK], double r[VALUES]) {
    EACH(p, 0) {
        double pivot = 1 / b[p * VALUES + p];
        EACH(k, p + 1) b[p * VALUES + k] *= pivot;
        EACH(k, 0) c[p * VALUES + k] *= pivot;
        r[p] *= pivot;
        EACH(i, 0) {
            if (i == p) continue;
            double factor = b[i * VALUES + p];
            EACH(k, p + 1) b[i * VALUES + k] -= factor * b[p * VALUES + k];
            EACH(k, 0) c[i * VALUES + k] -= factor * c[p * VALUES + k];
            r[i] -= factor * r[p];
        }
    }
}

/* Eliminates a cell: c and r are those of the cell before, and become its own. */
static inline void eliminate(const double *before, const double *cell, const double *behind, double c[BLOCK], double r[VALUES], const double *right) {
    double b[BLOCK], next[BLOCK], own[VALUES];
    make_block(b, 1 + 2 * STEP, STEP * COUPLING, cell);
    EACH(i, 0) own[i] = right[i];
    if (before) {
        double a[BLOCK];
        make_block(a, STEP, STEP * COUPLING, before);
        EACH(i, 0) EACH(m, 0) {
            EACH(k, 0) b[i * VALUES + k] += a[i * VALUES + m] * c[m * VALUES + k];
            own[i] += a[i * VALUES + m] * r[m];
        }
    }
    if (behind) make_block(next, -STEP, STEP * COUPLING, behind);
    else memset(next, 0, sizeof next);
    solve(b, next, own);
    memcpy(c, next, sizeof next);
    memcpy(r, own, sizeof own);
}

/* Where the line begins among all cells, and among own ones. */
static size_t line_begin(int d, int row, int line) {
    return (size_t)from[d] * stride(d) + (size_t)row * stride(row_of[d]) + (size_t)line * stride(line_of[d]);
}
static size_t own_line_begin(int d, int row, int line) {
    return (size_t)(row - from[row_of[d]]) * own_stride(row_of[d]) + (size_t)(line - from[line_of[d]]) * own_stride(line_of[d]);
}

static void eliminate_line(int d, int row, int line) {
    double c[BLOCK] = {0}, r[VALUES] = {0};
    if (has_below(d)) {
        const double *crosses = crossing_at(UP, d, place[d] - 1, row, line);
        memcpy(c, crosses, sizeof c);
        memcpy(r, crosses + BLOCK, sizeof r);
    }
    size_t step = stride(d) * VALUES, own = own_line_begin(d, row, line);
    const double *cell = values + line_begin(d, row, line) * VALUES;
    for (int i = from[d]; i < to[d]; i++, cell += step, own += own_stride(d)) {
        eliminate(i > 0 ? cell - step : NULL, cell, i + 1 < opt.side ? cell + step : NULL, c, r, change + own * VALUES);
        memcpy(eliminated + own * BLOCK, c, sizeof c);
        memcpy(change + own * VALUES, r, sizeof r);
    }
    if (has_above(d)) {
        double *crosses = crossing_at(UP, d, place[d], row, line);
        memcpy(crosses, c, sizeof c);
        memcpy(crosses + BLOCK, r, sizeof r);
    }
}

static void substitute_line(int d, int row, int line) {
    double above[VALUES] = {0};
    if (has_above(d)) memcpy(above, crossing_at(DOWN, d, place[d], row, line), sizeof above);
    size_t own = own_line_begin(d, row, line) + (size_t)(to[d] - from[d]) * own_stride(d);
    for (int i = to[d]; i > from[d]; i--) {
        own -= own_stride(d);
        const double *c = eliminated + own * BLOCK;
        double *r = change + own * VALUES, x[VALUES];
        EACH(k, 0) x[k] = r[k] - (c[k * VALUES] * above[0] + c[k * VALUES + 1] * above[1] + c[k * VALUES + 2] * above[2] + c[k * VALUES + 3] * above[3] + c[k * VALUES + 4] * above[4]);
        memcpy(r, x, sizeof x);
        memcpy(above, x, sizeof x);
    }
    if (has_below(d)) memcpy(crossing_at(DOWN, d, place[d] - 1, row, line), above, sizeof above);
}

static void solve_lines(int d) {
    int row_dimension = row_of[d], line_dimension = line_of[d];
    for (int row = from[row_dimension]; row < to[row_dimension]; row++) {
        if (has_below(d)) wait_for_row(UP, d, row);
        for (int line = from[line_dimension]; line < to[line_dimension]; line++) eliminate_line(d, row, line);
        if (has_above(d)) row_is_done(UP, d, row);
    }
    for (int row = from[row_dimension]; row < to[row_dimension]; row++) {
        if (has_above(d)) wait_for_row(DOWN, d, row);
        for (int line = from[line_dimension]; line < to[line_dimension]; line++) substitute_line(d, row, line);
        if (has_below(d)) row_is_done(DOWN, d, row);
    }
}

/* ---- An iteration ---- */

/* Calls `what(cell, own)` for each own cell: its number among all, and among own ones. */
#define FOR_OWN_CELLS(cell, own)                                                                                                    \
    for (size_t z = (size_t)from[Z], own = 0; z < (size_t)to[Z]; z++)                                                               \
        for (size_t y = (size_t)from[Y]; y < (size_t)to[Y]; y++)                                                                    \
            for (size_t x = (size_t)from[X], cell = (z * (size_t)opt.side + y) * (size_t)opt.side + x; x < (size_t)to[X]; x++, cell++, own++)

static void compute_imbalance(void) {
    size_t last = (size_t)opt.side - 1, y_step = stride(Y) * VALUES, z_step = stride(Z) * VALUES;
    FOR_OWN_CELLS(cell, own) {
        const double *v = values + cell * VALUES;
        EACH(k, 0) {
            double sum = -6 * v[k] + random_of(cell * VALUES + (size_t)k);
            if (x > 0) sum += v[k - VALUES];
            if (x < last) sum += v[k + VALUES];
            if (y > 0) sum += *(v + k - y_step);
            if (y < last) sum += *(v + k + y_step);
            if (z > 0) sum += *(v + k - z_step);
            if (z < last) sum += *(v + k + z_step);
            change[own * VALUES + (size_t)k] = STEP * sum;
        }
    }
}

static void add_changes(void) {
    FOR_OWN_CELLS(cell, own) {
        double *v = values + cell * VALUES;
        const double *by = change + own * VALUES;
        EACH(k, 0) v[k] += by[k];
    }
}

static void begin(void) {
    divide();
    make();
    size_t own_cells = (size_t)(to[Z] - from[Z]) * own_stride(Z);
    change = zeros(own_cells * VALUES, sizeof *change);
    eliminated = zeros(own_cells * BLOCK, sizeof *eliminated);
    for (int i = 0; i < BLOCK; i++) coupling[i] = random_of(~(uint64_t)i);
    FOR_OWN_CELLS(cell, own)
        for (size_t k = 0; k < VALUES; k++) values[cell * VALUES + k] = random_of(cells() * VALUES + cell * VALUES + k);
    updated();
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    FOR_OWN_CELLS(cell, own)
        for (size_t k = 0; k < VALUES; k++) {
            sum += mix(bits_of(values[cell * VALUES + k]) ^ mix(cell * VALUES + k));
        }
    return sum_of_all(sum);
}

int main(int argc, char **argv) {
    uint64_t side = (uint64_t)opt.side;
    struct setting settings[] = {{"side", "cells each way", &side, 2, 1024, NULL}, {"iters", "iterations", &opt.iters, 0, UINT64_C(1) << 40, NULL}};
    begin_run(&argc, &argv);
    PARSE(argc, argv, settings);
    opt.side = (int)side;
    begin();

    double start = seconds();
    for (uint64_t iter = 0; iter < opt.iters; iter++) {
        compute_imbalance();
        for (int d = X; d < DIMENSIONS; d++) solve_lines(d);
        add_changes();
        updated();
    }
    double end = seconds();

    uint64_t sum = checksum();
    if (self() == 0) {
        printf("appbt %d cells each way, %" PRIu64 " iterations\n", opt.side, opt.iters);
        print_results(sum, end - start);
    }
    end_run();
    return 0;
}
