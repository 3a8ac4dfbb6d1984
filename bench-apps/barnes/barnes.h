/* Barnes: bodies that attract each other, with forces of far ones taken together by an oct-tree. What all forms have in common.
 *
 * A step makes a tree of all bodies from scratch: a cell is a cube and has eight children, each empty, a body or a cell. Then each cell gets the mass and the centre of mass of what is in
 * it. Then each body goes through the tree: a cell that is far for its size acts as one body. At the end all bodies move.
 * Source: Reinhardt, "Mechanisms for Distributed Shared Memory" (1996), section 2.4.3; Barnes and Hut, "A hierarchical O(N log N) force-calculation algorithm" (1986).
 *
 * Bodies are in the order in which a curve through the cube meets them at first. Run node k of n owns the bodies from Nk/n to N(k+1)/n, and the cells that it makes.
 *
 * The shape of the tree depends on where the bodies are only, and all sums go through children in order. Thus the checksum, which is taken over the bits of
 * all positions and velocities, is the same for any number of run nodes and for the plain program.
 *
 * Standard output: two lines, from node 0, that depend on the options only. Standard error: one line with the time of the steps.
 */
#define APPLICATION "barnes"
#include "../common.h"

#include <math.h>

#define STEP 0.025
/* A cell is far if its side is shorter than the way to it, times this. */
#define TOLERANCE 1.0
/* Bodies that meet do not go apart at any speed. */
#define SOFT 0.05
/* Levels of the tree. The cube of side 2^DEPTH has coordinates that are whole numbers. */
enum { DEPTH = 21, CHILDREN = 8, SUBTREES = CHILDREN * CHILDREN };

struct body {
    double at[3], mass;
};

/* A block of memory. A child is 0, twice the number of a cell, or twice the number of a body plus 1. Cells count from 1. */
struct cell {
    _Alignas(64) uint32_t child[CHILDREN];
    struct body sum;
};
enum { ROOT = 1 };

static struct {
    uint64_t bodies;
    uint64_t steps;
} opt = {16384, 4};

/* Own bodies. */
static uint32_t own_begin, own_end;
/* Half the side of the cube of all bodies. */
static double half;
/* Own cells that are in use. */
static uint32_t used;
/* Of own bodies, from 0. */
static struct body *velocities;

/* ---- The form ---- */

/* All bodies; all cells, from 1 on. Run node k's cells begin at cell_room() * k + 1. */
static struct body *bodies;
static struct cell *cells;
/* Each run node makes the whole tree for itself. */
static int tree_is_private(void);

/* Memory for the above. */
static void make(void);
/* Nobody else changes the cell meanwhile. */
static void lock_cell(uint32_t number);
static void unlock_cell(uint32_t number);
/* All have done what comes before. */
static void wait_for_all(void);
/* The same; all have built, and read the tree next. */
static void built(void);
/* The same; own bodies have moved. On return others' may be read. */
static void moved(void);
/* Of a number on each run node; all call it. */
static double largest_of_all(double value);

/* ---- Bodies ---- */

static uint32_t begin_of(unsigned node) { return (uint32_t)(opt.bodies * node / run_nodes()); }
/* Each run node's cells: far more than trees of so many bodies have. */
static size_t cell_room(void) { return (size_t)opt.bodies * 2 + 1024; }
static size_t cells_in_all(void) { return (tree_is_private() ? 1 : run_nodes()) * cell_room() + 1; }

/* A stream of random numbers in [0, 1). */
static double draw(uint64_t *state) { return (double)(mix((*state)++) >> 11) * 0x1p-53; }

static void point_anywhere(double to[3], double length, uint64_t *random) {
    double square;
    do {
        square = 0;
        for (int k = 0; k < 3; k++) {
            to[k] = 2 * draw(random) - 1;
            square += to[k] * to[k];
        }
    } while (square >= 1 || square == 0);
    for (int k = 0; k < 3; k++) to[k] *= length / sqrt(square);
}

/* Where a coordinate is in a cube of half this side. */
static inline uint32_t whole(double at, double half) {
    double place = (at + half) * (double)(1u << (DEPTH - 1)) / half;
    return place < 0 ? 0 : place >= (double)(1u << DEPTH) ? (1u << DEPTH) - 1 : (uint32_t)place;
}

struct place {
    uint32_t at[3];
};
static inline struct place place_of(const struct body *b) {
    return (struct place){{whole(b->at[0], half), whole(b->at[1], half), whole(b->at[2], half)}};
}
static inline unsigned octant(struct place p, unsigned depth) {
    unsigned bit = DEPTH - 1 - depth;
    return (p.at[0] >> bit & 1) << 2 | (p.at[1] >> bit & 1) << 1 | (p.at[2] >> bit & 1);
}

struct at_first {
    uint64_t key;
    struct body body, velocity;
};
static int by_key(const void *a, const void *b) {
    uint64_t x = ((const struct at_first *)a)->key, y = ((const struct at_first *)b)->key;
    return x < y ? -1 : x > y;
}

/* A ball that is denser in the middle, after Plummer. */
static void begin(void) {
    struct at_first *all = zeros(opt.bodies, sizeof *all);
    half = 16;
    for (uint64_t n = 0; n < opt.bodies; n++) {
        uint64_t random = mix(n);
        double within = 0.999 * draw(&random) + 0x1p-20;
        point_anywhere(all[n].body.at, 1 / sqrt(pow(within, -2.0 / 3) - 1), &random);
        all[n].body.mass = 1 / (double)opt.bodies;
        point_anywhere(all[n].velocity.at, 0.5 * draw(&random), &random);
        struct place place = place_of(&all[n].body);
        for (unsigned depth = 0; depth < DEPTH; depth++) all[n].key = all[n].key << 3 | octant(place, depth);
    }
    qsort(all, opt.bodies, sizeof *all, by_key);
    own_begin = begin_of(self());
    own_end = begin_of(self() + 1);
    make();
    velocities = zeros(own_end - own_begin, sizeof *velocities);
    for (uint32_t n = own_begin; n < own_end; n++) {
        bodies[n] = all[n].body;
        velocities[n - own_begin] = all[n].velocity;
    }
    free(all);
    moved();
}

/* ---- The tree ---- */

static uint32_t new_cell(void) {
    if (used == cell_room()) {
        fprintf(stderr, "barnes: bodies are too near to each other\n");
        exit(1);
    }
    uint32_t number = (uint32_t)((tree_is_private() ? 0 : self()) * cell_room()) + ++used;
    memset(&cells[number], 0, sizeof *cells);
    return number;
}

static uint32_t load(uint32_t *child) { return __atomic_load_n(child, __ATOMIC_ACQUIRE); }
static void store(uint32_t *child, uint32_t value) { __atomic_store_n(child, value, __ATOMIC_RELEASE); }

static void insert(uint32_t number) {
    struct place place = place_of(&bodies[number]);
    uint32_t at = ROOT;
    for (unsigned depth = 0; depth < DEPTH;) {
        uint32_t *child = &cells[at].child[octant(place, depth)];
        uint32_t found = load(child);
        if (found && found % 2 == 0) {
            at = found / 2, depth++;
            continue;
        }
        lock_cell(at);
        found = load(child);
        if (found == 0) {
            store(child, 2 * number + 1);
            unlock_cell(at);
            return;
        }
        if (found % 2) {
            /* The other body goes into a new cell, which takes its place; this one is tried again there. */
            uint32_t made = new_cell();
            cells[made].child[octant(place_of(&bodies[found / 2]), depth + 1)] = found;
            store(child, 2 * made);
        }
        unlock_cell(at);
    }
    fprintf(stderr, "barnes: two bodies are in one place\n");
    exit(1);
}

static void add_up(uint32_t number, unsigned levels) {
    struct cell *cell = &cells[number];
    double x = 0, y = 0, z = 0, mass = 0;
    for (int i = 0; i < CHILDREN; i++) {
        uint32_t child = cell->child[i];
        if (child == 0) continue;
        if (child % 2 == 0 && levels) add_up(child / 2, levels - 1);
        const struct body *b = child % 2 ? &bodies[child / 2] : &cells[child / 2].sum;
        x += b->mass * b->at[0];
        y += b->mass * b->at[1];
        z += b->mass * b->at[2];
        mass += b->mass;
    }
    cell->sum = (struct body){{x / mass, y / mass, z / mass}, mass};
}

/* The sub-trees of the third level are divided among the run nodes. */
static void add_up_all(void) {
    for (unsigned path = 0; path < SUBTREES; path++) {
        if (!tree_is_private() && path * run_nodes() / SUBTREES != self()) continue;
        uint32_t child = cells[ROOT].child[path / CHILDREN];
        if (child == 0 || child % 2) continue;
        child = cells[child / 2].child[path % CHILDREN];
        if (child && child % 2 == 0) add_up(child / 2, DEPTH);
    }
    wait_for_all();
    if (self() == 0 || tree_is_private()) add_up(ROOT, 1);
}

static void build(void) {
    double far = 0;
    for (uint32_t n = own_begin; n < own_end; n++)
        for (int k = 0; k < 3; k++) far = fmax(far, fabs(bodies[n].at[k]));
    half = 1.001 * largest_of_all(far);
    used = 0;
    if (self() == 0 || tree_is_private()) new_cell();
    wait_for_all();
    uint32_t first = tree_is_private() ? 0 : own_begin, last = tree_is_private() ? (uint32_t)opt.bodies : own_end;
    for (uint32_t n = first; n < last; n++) insert(n);
    wait_for_all();
    add_up_all();
    built();
}

/* ---- Forces ---- */

/* The body whose turn it is, its number, and the force on it so far. */
static struct body own, force;
static uint32_t own_number;

static inline void attract(double x, double y, double z, double square, double mass) {
    double r2 = 1 / (square + SOFT * SOFT), by = mass * r2 * sqrt(r2);
    force.at[0] += by * x;
    force.at[1] += by * y;
    force.at[2] += by * z;
}

/* A cell whose side has this square. */
static void go_through(const struct cell *cell, double side2) {
    double x = cell->sum.at[0] - own.at[0], y = cell->sum.at[1] - own.at[1], z = cell->sum.at[2] - own.at[2];
    double square = x * x + y * y + z * z;
    if (side2 < square * (TOLERANCE * TOLERANCE)) {
        attract(x, y, z, square, cell->sum.mass);
        return;
    }
    uint32_t children[CHILDREN];
    memcpy(children, cell->child, sizeof children);
    /* Written out: compilers leave short loops as they are at -O2. */
    _Pragma("GCC unroll 8") for (int i = 0; i < CHILDREN; i++) {
        uint32_t child = children[i];
        if (child % 2) {
            if (child / 2 == own_number) continue;
            const struct body *b = &bodies[child / 2];
            x = b->at[0] - own.at[0], y = b->at[1] - own.at[1], z = b->at[2] - own.at[2];
            attract(x, y, z, x * x + y * y + z * z, b->mass);
        } else if (child) {
            go_through(&cells[child / 2], side2 / 4);
        }
    }
}

static struct body force_on(uint32_t number) {
    own = bodies[number];
    own_number = number;
    force = (struct body){{0}, 0};
    go_through(&cells[ROOT], 4 * half * half);
    return force;
}

static void step(struct body *forces) {
    build();
    for (uint32_t n = own_begin; n < own_end; n++) forces[n - own_begin] = force_on(n);
    wait_for_all();
    for (uint32_t n = own_begin; n < own_end; n++)
        for (int k = 0; k < 3; k++) {
            velocities[n - own_begin].at[k] += STEP * forces[n - own_begin].at[k];
            bodies[n].at[k] += STEP * velocities[n - own_begin].at[k];
        }
    moved();
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (uint32_t n = own_begin; n < own_end; n++)
        for (int k = 0; k < 3; k++) {
            sum += mix(bits_of(bodies[n].at[k]) ^ mix(bits_of(velocities[n - own_begin].at[k]) ^ mix((uint64_t)n * 3 + (uint64_t)k)));
        }
    return sum_of_all(sum);
}

int main(int argc, char **argv) {
    struct setting settings[] = {{"bodies", "in all", &opt.bodies, 2, 1000000, NULL}, {"steps", "of time", &opt.steps, 0, 1000000, NULL}};
    begin_run(&argc, &argv);
    PARSE(argc, argv, settings);
    begin();
    struct body *forces = zeros(own_end - own_begin, sizeof *forces);

    double start = seconds();
    for (uint64_t n = 0; n < opt.steps; n++) step(forces);
    double end = seconds();

    uint64_t sum = checksum();
    if (self() == 0) {
        printf("barnes %" PRIu64 " bodies, %" PRIu64 " steps\n", opt.bodies, opt.steps);
        print_results(sum, end - start);
    }
    end_run();
    return 0;
}
