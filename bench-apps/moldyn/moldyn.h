/* Moldyn: molecules that attract and repel each other. What all forms have in common.
 *
 * Molecules in a box that repeats itself, with the potential of Lennard and Jones. A list has the pairs that are near each other. An iteration goes over
 * the list, adds a force to both molecules of each pair, and moves all. The list is made anew every 20 iterations, from all pairs.
 * Source: Reinhardt, "Mechanisms for Distributed Shared Memory" (1996), section 2.4.5.
 *
 * Run node k of n owns the molecules from Mk/n to M(k+1)/n. Of each pair one molecule is the first, the same in all runs: half of the others are behind each
 * molecule, counted in a ring. Who owns the first has the pair in its list.
 *
 * Forces are integers in units of 2^-32, so the order of their sums does not matter. Thus the checksum, which is taken over the bits of all positions and
 * velocities, is the same for any number of run nodes and for the plain program.
 *
 * Standard output: two lines, from node 0, that depend on the options only. Standard error: one line with the time of the iterations.
 */
#define APPLICATION "moldyn"
#include "../common.h"

#include <math.h>

#define UNIT 0x1p32
#define STEP 0x1p-9
/* Up to where molecules act on each other, and what a list keeps: they may have come nearer before the next one is made. */
#define REACH 2.5
#define LISTED 2.8
#define DENSITY 0.8442
enum { LIST_LASTS = 20 };

struct vector {
    double of[3];
};
struct force {
    int64_t of[3];
};
struct pair {
    int a, b;
};

static struct {
    int cells;
    uint64_t iters;
} opt = {13, 30};

static double box;
static struct pair *list;
static size_t pairs, room;
/* Of own molecules, from 0. */
static struct vector *velocities;

/* ---- The form ---- */

/* Where all molecules are. */
static struct vector *positions;
/* By molecule: what this run node has added. Private, zero at first. */
static struct force *forces;

/* Memory for the above. */
static void make(void);
/* This run node has added all of its forces. Returns the forces of all run nodes, right for own molecules, to be set to zero by the caller. */
static struct force *merged(void);
/* Own molecules have new positions. On return others' may be read. */
static void moved(void);

/* ---- Molecules ---- */

static int molecules(void) { return 4 * opt.cells * opt.cells * opt.cells; }
static int begin_of(unsigned node) { return (int)((int64_t)molecules() * node / run_nodes()); }

/* A crystal: four molecules to a cell. They begin with random velocities. */
static void begin(void) {
    make();
    box = cbrt(molecules() / DENSITY);
    velocities = zeros((size_t)(begin_of(self() + 1) - begin_of(self())), sizeof *velocities);
    for (int m = begin_of(self()); m < begin_of(self() + 1); m++) {
        int cell = m / 4, corner = m % 4, at[3] = {cell % opt.cells, cell / opt.cells % opt.cells, cell / opt.cells / opt.cells};
        for (int k = 0; k < 3; k++) {
            positions[m].of[k] = (at[k] + (corner && corner - 1 != k ? 0.5 : 0)) * box / opt.cells;
            velocities[m - begin_of(self())].of[k] = ((double)(mix((uint64_t)m * 3 + (uint64_t)k) >> 11) * 0x1p-53 - 0.5) * 2;
        }
    }
    moved();
}

/* Written out, here and below: compilers leave loops of three as they are at -O2. */
static inline void add_force(struct force *to, const struct force *from) {
    to->of[0] += from->of[0];
    to->of[1] += from->of[1];
    to->of[2] += from->of[2];
}

static inline double nearest_image(double d, double half) { return d > half ? d - box : d < -half ? d + box : d; }

/* From `from` to the nearest image of `to`; returns the square of the distance. */
static inline double toward(const struct vector *from, const struct vector *to, double half, double by[3]) {
    by[0] = nearest_image(to->of[0] - from->of[0], half);
    by[1] = nearest_image(to->of[1] - from->of[1], half);
    by[2] = nearest_image(to->of[2] - from->of[2], half);
    return by[0] * by[0] + by[1] * by[1] + by[2] * by[2];
}

static void add_pair(int a, int b) {
    if (pairs == room) {
        room = room ? room * 2 : 1 << 16;
        list = need(realloc(list, room * sizeof *list));
    }
    list[pairs++] = (struct pair){a, b};
}

static void make_list(void) {
    int all = molecules();
    double half = box / 2, by[3];
    pairs = 0;
    for (int a = begin_of(self()); a < begin_of(self() + 1); a++) {
        struct vector from = positions[a];
        int behind = (all - 1) / 2 + (all % 2 == 0 && a < all / 2), last = a + behind;
        for (int b = a + 1; b <= last && b < all; b++)
            if (toward(&from, &positions[b], half, by) < LISTED * LISTED) add_pair(a, b);
        for (int b = 0; b <= last - all; b++)
            if (toward(&from, &positions[b], half, by) < LISTED * LISTED) add_pair(a, b);
    }
}

static void add_forces(void) {
    double half = box / 2;
    for (size_t i = 0; i < pairs; i++) {
        struct pair p = list[i];
        double by[3], square = toward(&positions[p.a], &positions[p.b], half, by);
        if (square >= REACH * REACH) continue;
        double r2 = 1 / square, r6 = r2 * r2 * r2, force = 48 * r2 * r6 * (r6 - 0.5);
        struct force on_b = {{(int64_t)(force * by[0] * UNIT), (int64_t)(force * by[1] * UNIT), (int64_t)(force * by[2] * UNIT)}};
        struct force on_a = {{-on_b.of[0], -on_b.of[1], -on_b.of[2]}};
        add_force(&forces[p.a], &on_a);
        add_force(&forces[p.b], &on_b);
    }
}

static void move(struct force *all) {
    struct vector *v = velocities;
    for (int m = begin_of(self()); m < begin_of(self() + 1); m++, v++)
        for (int k = 0; k < 3; k++) {
            v->of[k] += (double)all[m].of[k] * (STEP / UNIT);
            all[m].of[k] = 0;
            double at = positions[m].of[k] + v->of[k] * STEP;
            positions[m].of[k] = at < 0 ? at + box : at >= box ? at - box : at;
        }
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int m = begin_of(self()); m < begin_of(self() + 1); m++)
        for (int k = 0; k < 3; k++) {
            sum += mix(bits_of(positions[m].of[k]) ^ mix(bits_of(velocities[m - begin_of(self())].of[k]) ^ mix((uint64_t)m * 3 + (uint64_t)k)));
        }
    return sum_of_all(sum);
}

int main(int argc, char **argv) {
    uint64_t cells = (uint64_t)opt.cells;
    struct setting settings[] = {{"cells", "of the crystal each way, 4 molecules to each", &cells, 4, 100, NULL}, {"iters", "iterations", &opt.iters, 0, UINT64_C(1) << 40, NULL}};
    begin_run(&argc, &argv);
    PARSE(argc, argv, settings);
    opt.cells = (int)cells;
    begin();

    double start = seconds();
    for (uint64_t iter = 0; iter < opt.iters; iter++) {
        if (iter % LIST_LASTS == 0) make_list();
        add_forces();
        move(merged());
        moved();
    }
    double end = seconds();

    uint64_t sum = checksum(), all_pairs = sum_of_all(pairs);
    if (self() == 0) {
        printf("moldyn %d molecules, %" PRIu64 " iterations, %" PRIu64 " pairs at the end\n", molecules(), opt.iters, all_pairs);
        print_results(sum, end - start);
    }
    end_run();
    return 0;
}
