/* DSMC: a gas as particles that move and collide, by direct simulation Monte Carlo. What all forms have in common.
 *
 * A channel of 30 x 18 x 18 cells. Gas flows in at one end and out at the other; the walls reflect. An iteration has three phases: pairs of particles of a cell collide at random;
 * all particles move; each is given to the cell where it is now.
 * Source: Reinhardt, "Mechanisms for Distributed Shared Memory" (1996), section 2.4.4.
 *
 * Run node k of n owns the cells from Ck/n to C(k+1)/n, and the particles in them. A particle that moves to a cell of another run node is given to that one.
 *
 * All random numbers are hashes of what they are for, and the particles of a cell are in the order of their numbers. Thus the checksum, which is taken over the bits of
 * all particles, is the same for any number of run nodes and for the plain program.
 *
 * Standard output: two lines, from node 0, that depend on the options only. Standard error: one line with the time of the iterations.
 */
#define APPLICATION "dsmc"
#include "../common.h"

#include <math.h>

/* Cells along the flow and across it. The last number of a cell's place is along z. */
enum { LONG = 30, WIDE = 18, CELLS = LONG * WIDE * WIDE };
/* In cells for each step: the flow, and how fast particles move in it at most each way. */
#define FLOW 0.2
#define HEAT 0.3
/* Pairs that are looked at, for each particle of a cell; the speed at which all of them collide. */
#define PAIRS 0.5
#define FAST 1.0

struct particle {
    double at[3], v[3];
    uint64_t number;
};

static struct {
    uint64_t particles;
    uint64_t inflow;
    uint64_t iters;
} opt = {48000, 460, 400};

/* Those of own cells, by cell and number, and where those of a cell begin; and those that have moved, in any order, with their cells. */
static struct particle *particles, *moved;
static int *moved_to;
static int own_begin, own_end;
static size_t count, moved_count, first_of[CELLS + 1];

/* ---- The form ---- */

/* Memory for own particles, and whatever else. */
static void make(void);
/* A particle has moved to a cell of another run node. */
static void give(unsigned owner, const struct particle *p);
/* This run node has given all. Calls `keep` for all that it is given in this iteration. */
static void take(void);

/* No run has more particles. */
static size_t most(void) { return (size_t)(opt.particles + opt.inflow * opt.iters + 1); }
/* ---- Who has what ---- */

static int begin_of(unsigned node) { return (int)((int64_t)CELLS * node / run_nodes()); }
static unsigned owner_of(int cell) {
    unsigned node = (unsigned)((int64_t)cell * run_nodes() / CELLS);
    while (cell >= begin_of(node + 1)) node++;
    while (cell < begin_of(node)) node--;
    return node;
}
static int cell_of(const struct particle *p) { return ((int)p->at[0] * WIDE + (int)p->at[1]) * WIDE + (int)p->at[2]; }

static void keep_in(int cell, const struct particle *p) {
    moved_to[moved_count] = cell;
    moved[moved_count++] = *p;
}
static void keep(const struct particle *p) { keep_in(cell_of(p), p); }

/* A stream of random numbers in [0, 1). */
static inline double draw(uint64_t *state) { return (double)(mix((*state)++) >> 11) * 0x1p-53; }

/* A loop over three, written out: compilers leave it as it is at -O2. */
#define EACH(k) _Pragma("GCC unroll 3") for (int k = 0; k < 3; k++)

/* ---- The phases ---- */

/* A pair collides: its velocities relative to each other point anywhere. */
static void collide(struct particle *a, struct particle *b, uint64_t *random) {
    double x = a->v[0] - b->v[0], y = a->v[1] - b->v[1], z = a->v[2] - b->v[2], speed = sqrt(x * x + y * y + z * z);
    if (speed < FAST * draw(random)) return;
    double s, t, square;
    do {
        s = 2 * draw(random) - 1;
        t = 2 * draw(random) - 1;
        square = s * s + t * t;
    } while (square >= 1);
    double flat = 2 * sqrt(1 - square) * speed / 2;
    double to[3] = {s * flat, t * flat, (1 - 2 * square) * speed / 2};
    EACH(k) {
        double mean = (a->v[k] + b->v[k]) / 2;
        a->v[k] = mean + to[k];
        b->v[k] = mean - to[k];
    }
}

static void collide_all(uint64_t iter) {
    for (int cell = own_begin; cell < own_end; cell++) {
        size_t all = first_of[cell + 1] - first_of[cell];
        if (all < 2) continue;
        struct particle *p = particles + first_of[cell];
        uint64_t random = mix(iter * CELLS + (uint64_t)cell);
        for (size_t pairs = (size_t)((double)all * PAIRS + draw(&random)); pairs > 0; pairs--) {
            size_t a = (size_t)(draw(&random) * (double)all), b = (size_t)(draw(&random) * (double)(all - 1));
            collide(&p[a], &p[b + (b >= a)], &random);
        }
    }
}

static inline double reflected(double at, double *v) {
    if (at >= 0 && at < WIDE) return at;
    *v = -*v;
    at = at < 0 ? -at : 2 * WIDE - at;
    return at < WIDE ? at : WIDE - 0x1p-20;
}

/* To its new cell, unless it has left the channel. */
static inline void place(const struct particle *p) {
    int cell = cell_of(p);
    if (cell >= own_begin && cell < own_end) keep_in(cell, p);
    else give(owner_of(cell), p);
}

static void move_all(void) {
    moved_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct particle p = particles[i];
        p.at[0] += p.v[0];
        if (p.at[0] < 0 || p.at[0] >= LONG) continue;
        p.at[1] = reflected(p.at[1] + p.v[1], &p.v[1]);
        p.at[2] = reflected(p.at[2] + p.v[2], &p.v[2]);
        place(&p);
    }
}

static struct particle new_particle(uint64_t number, double length) {
    uint64_t random = mix(~number);
    struct particle p = {.number = number};
    p.at[0] = draw(&random) * length;
    p.at[1] = draw(&random) * WIDE;
    p.at[2] = draw(&random) * WIDE;
    for (int k = 0; k < 3; k++) p.v[k] = HEAT * (draw(&random) + draw(&random) - 1);
    p.v[0] += FLOW;
    return p;
}

/* What flows in: each run node keeps what comes into its own cells. */
static void let_in(uint64_t first, uint64_t new_ones, double length) {
    if (length <= 1 && own_begin >= WIDE * WIDE) return;
    for (uint64_t number = first; number < first + new_ones; number++) {
        struct particle p = new_particle(number, length);
        int cell = cell_of(&p);
        if (cell >= own_begin && cell < own_end) keep_in(cell, &p);
    }
}

/* By cell, and in a cell by number. */
static void sort_all(void) {
    int begin = own_begin, end = own_end;
    memset(first_of + begin, 0, (size_t)(end - begin + 1) * sizeof *first_of);
    for (size_t i = 0; i < moved_count; i++) first_of[moved_to[i]]++;
    size_t at = 0;
    for (int cell = begin; cell <= end; cell++) {
        size_t here = first_of[cell];
        first_of[cell] = at;
        at += here;
    }
    for (size_t i = 0; i < moved_count; i++) particles[first_of[moved_to[i]]++] = moved[i];
    /* Each has become the beginning of the next. */
    memmove(first_of + begin + 1, first_of + begin, (size_t)(end - begin) * sizeof *first_of);
    first_of[begin] = 0;
    count = moved_count;
    for (int cell = begin; cell < end; cell++)
        for (size_t i = first_of[cell] + 1; i < first_of[cell + 1]; i++) {
            if (particles[i - 1].number < particles[i].number) continue;
            struct particle p = particles[i];
            size_t to = i;
            for (; to > first_of[cell] && particles[to - 1].number > p.number; to--) particles[to] = particles[to - 1];
            particles[to] = p;
        }
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits[6], hash = particles[i].number;
        memcpy(bits, particles[i].at, sizeof bits);
        for (int k = 0; k < 6; k++) hash = mix(hash ^ bits[k]);
        sum += hash;
    }
    return sum_of_all(sum);
}

int main(int argc, char **argv) {
    struct setting settings[] = {{"particles", "at first", &opt.particles, 0, 100000000, NULL},
                                 {"inflow", "particles that come in each time", &opt.inflow, 0, 1000000, NULL},
                                 {"iters", "iterations", &opt.iters, 0, 1000000, NULL}};
    begin_run(&argc, &argv);
    PARSE(argc, argv, settings);
    make();
    moved_to = need(malloc(most() * sizeof *moved_to));
    own_begin = begin_of(self());
    own_end = begin_of(self() + 1);
    let_in(0, opt.particles, LONG);
    sort_all();

    double start = seconds();
    for (uint64_t iter = 0; iter < opt.iters; iter++) {
        collide_all(iter);
        move_all();
        let_in(opt.particles + iter * opt.inflow, opt.inflow, FLOW);
        take();
        sort_all();
    }
    double end = seconds();

    uint64_t sum = checksum(), all = sum_of_all(count);
    if (self() == 0) {
        printf("dsmc %" PRIu64 " particles at first, %" PRIu64 " after %" PRIu64 " iterations\n", opt.particles, all, opt.iters);
        print_results(sum, end - start);
    }
    end_run();
    return 0;
}
