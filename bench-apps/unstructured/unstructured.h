/* Unstructured: the flow of a gas on a static mesh. What all forms have in common.
 *
 * Points of the mesh have five quantities (density, momentum, energy). An iteration goes over the edges, then over the faces of the surface. Each adds a
 * flux, computed from the quantities of its points, to their sums. Then each point's quantities change by its sums.
 * Source: Reinhardt, "Mechanisms for Distributed Shared Memory" (1996), section 2.4.6.
 *
 * The mesh is a cube of --side points each way, cut into tetrahedra: each point has edges to seven of its neighbours. Whoever computes does not know that:
 * edges and faces are lists of points. Run node k of n owns the points from Pk/n to P(k+1)/n, and the edges and faces whose first point it owns.
 *
 * Sums are integers in units of 2^-32, so their order does not matter. Thus the checksum, which is taken over the bits of all quantities, is the same for any
 * number of run nodes and for the plain program.
 *
 * Standard output: two lines, from node 0, that depend on the options only. Standard error: one line with the time of the iterations.
 */
#define APPLICATION "unstructured"
#include "../common.h"

#include <math.h>

enum { QUANTITIES = 5 };
#define UNIT 0x1p32
#define STEP 0x1p-10

/* A point: one block of memory. `pressure` and `sound` (its speed) follow from the others. */
struct point {
    double density, momentum[3], energy, pressure, sound, spare;
};
struct sums {
    int64_t of[QUANTITIES];
};
/* Places of points, in the arrays below. */
struct edge {
    int a, b;
    double normal[3];
    double area;
};
struct face {
    int at[3];
    double normal[3];
};

static struct {
    int side;
    uint64_t iters;
} opt = {21, 5};

static struct edge *edges;
static struct face *faces;
static int edge_count, face_count;

/* ---- The form ---- */

/* Points by place; those of others as far as an edge or a face of this run node has them. */
static struct point *points;
/* By place: what this run node has added. Private, zero at first. */
static struct sums *sums;

/* Memory for the points of this run node; afterwards its own have places. */
static void make_points(void);
/* The place of a point that this run node uses. */
static int place_of(int point);
/* The mesh is built and the own points have their first quantities. On return others' may be read. */
static void built(void);
/* This run node has added all of its fluxes. Returns the sums of all run nodes, right for own points, to be set to zero by the caller. */
static struct sums *merged(void);
/* Own points have new quantities. On return others' may be read. */
static void updated(void);

/* ---- The partition ---- */

static int all_points(void) { return opt.side * opt.side * opt.side; }
static int begin_of(unsigned node) { return (int)((int64_t)all_points() * node / run_nodes()); }
static int own_points(void) { return begin_of(self() + 1) - begin_of(self()); }
static inline unsigned owner(int point) {
    unsigned node = (unsigned)((int64_t)point * run_nodes() / all_points());
    while (point >= begin_of(node + 1)) node++;
    return node;
}

/* ---- The mesh ---- */

/* In [0, 1), of a point and a purpose. */
static double draw(int point, int purpose) { return (double)(mix(mix((uint64_t)point) + (uint64_t)purpose) >> 11) * 0x1p-53; }

/* The point `dx`, `dy`, `dz` further on, or -1. */
static int beyond(int point, int dx, int dy, int dz) {
    int s = opt.side, x = point % s + dx, y = point / s % s + dy, z = point / s / s + dz;
    return x < s && y < s && z < s ? (z * s + y) * s + x : -1;
}

static void add_edges(int point) {
    for (int direction = 1; direction < 8; direction++) {
        int d[3] = {direction & 1, direction >> 1 & 1, direction >> 2};
        int to = beyond(point, d[0], d[1], d[2]);
        if (to < 0) continue;
        double length = sqrt(d[0] + d[1] + d[2]);
        struct edge *e = &edges[edge_count++];
        *e = (struct edge){.a = place_of(point), .b = place_of(to), .area = (1 + draw(point, direction) / 64) / length};
        for (int i = 0; i < 3; i++) e->normal[i] = d[i] / length;
    }
}

/* Two triangles for each square of the surface. */
static void add_faces(int point) {
    int s = opt.side, at[3] = {point % s, point / s % s, point / s / s};
    for (int axis = 0; axis < 3; axis++) {
        if (at[axis] != 0 && at[axis] != s - 1) continue;
        int u[3] = {axis == 1, axis == 2, axis == 0}, v[3] = {axis == 2, axis == 0, axis == 1};
        int one = beyond(point, u[0], u[1], u[2]), two = beyond(point, v[0], v[1], v[2]);
        int both = beyond(point, u[0] + v[0], u[1] + v[1], u[2] + v[2]);
        if (both < 0) continue;
        for (int half = 0; half < 2; half++) {
            struct face *f = &faces[face_count++];
            *f = (struct face){.at = {place_of(point), place_of(half ? two : one), place_of(both)}};
            f->normal[axis] = at[axis] ? 0.5 : -0.5;
        }
    }
}

static void derive(struct point *p) {
    double square = p->momentum[0] * p->momentum[0] + p->momentum[1] * p->momentum[1] + p->momentum[2] * p->momentum[2];
    p->pressure = 0.4 * (p->energy - 0.5 * square / p->density);
    p->sound = sqrt(1.4 * p->pressure / p->density);
}

static void build(void) {
    make_points();
    edges = zeros((size_t)own_points() * 7, sizeof *edges);
    faces = zeros((size_t)own_points() * 6, sizeof *faces);
    for (int point = begin_of(self()); point < begin_of(self() + 1); point++) {
        struct point *p = &points[place_of(point)];
        p->density = 1 + draw(point, 10) / 8;
        for (int i = 0; i < 3; i++) p->momentum[i] = (draw(point, 11 + i) - 0.5) / 8;
        p->energy = 2.5 + draw(point, 14) / 8;
        derive(p);
        add_edges(point);
        add_faces(point);
    }
    built();
}

/* ---- The computation ---- */

static inline int64_t units(double flux) { return (int64_t)(flux * UNIT); }

/* Written out, here and below: compilers leave short loops as they are at -O2. */
static inline void add_sums(struct sums *to, const struct sums *from) {
    to->of[0] += from->of[0];
    to->of[1] += from->of[1];
    to->of[2] += from->of[2];
    to->of[3] += from->of[3];
    to->of[4] += from->of[4];
}
static inline void take_sums(struct sums *to, const struct sums *from) {
    to->of[0] -= from->of[0];
    to->of[1] -= from->of[1];
    to->of[2] -= from->of[2];
    to->of[3] -= from->of[3];
    to->of[4] -= from->of[4];
}

/* The flux of Rusanov from a to b. */
static void over_edges(void) {
    for (int i = 0; i < edge_count; i++) {
        const struct edge *e = &edges[i];
        const struct point *a = &points[e->a], *b = &points[e->b];
        const double *n = e->normal, *ma = a->momentum, *mb = b->momentum;
        double va = (ma[0] * n[0] + ma[1] * n[1] + ma[2] * n[2]) / a->density;
        double vb = (mb[0] * n[0] + mb[1] * n[1] + mb[2] * n[2]) / b->density;
        double fast_a = fabs(va) + a->sound, fast_b = fabs(vb) + b->sound, fast = fast_a > fast_b ? fast_a : fast_b;
        double half = 0.5 * e->area, push = a->pressure + b->pressure;
        struct sums flux = {{
            units(half * (va * a->density + vb * b->density - fast * (b->density - a->density))),
            units(half * (va * ma[0] + vb * mb[0] + push * n[0] - fast * (mb[0] - ma[0]))),
            units(half * (va * ma[1] + vb * mb[1] + push * n[1] - fast * (mb[1] - ma[1]))),
            units(half * (va * ma[2] + vb * mb[2] + push * n[2] - fast * (mb[2] - ma[2]))),
            units(half * (va * (a->energy + a->pressure) + vb * (b->energy + b->pressure) - fast * (b->energy - a->energy))),
        }};
        take_sums(&sums[e->a], &flux);
        add_sums(&sums[e->b], &flux);
    }
}

/* The pressure on a wall. */
static void over_faces(void) {
    for (int i = 0; i < face_count; i++) {
        const struct face *f = &faces[i];
        double third = (points[f->at[0]].pressure + points[f->at[1]].pressure + points[f->at[2]].pressure) / 9;
        struct sums push = {{0, units(third * f->normal[0]), units(third * f->normal[1]), units(third * f->normal[2]), 0}};
        for (int corner = 0; corner < 3; corner++) take_sums(&sums[f->at[corner]], &push);
    }
}

static void over_points(struct sums *of_all) {
    for (int point = begin_of(self()), place = place_of(point); point < begin_of(self() + 1); point++, place++) {
        struct point *p = &points[place];
        struct sums *s = &of_all[place];
        p->density += (double)s->of[0] * (STEP / UNIT);
        p->momentum[0] += (double)s->of[1] * (STEP / UNIT);
        p->momentum[1] += (double)s->of[2] * (STEP / UNIT);
        p->momentum[2] += (double)s->of[3] * (STEP / UNIT);
        p->energy += (double)s->of[4] * (STEP / UNIT);
        derive(p);
        *s = (struct sums){{0}};
    }
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int point = begin_of(self()); point < begin_of(self() + 1); point++) {
        const struct point *p = &points[place_of(point)];
        double all[] = {p->density, p->momentum[0], p->momentum[1], p->momentum[2], p->energy};
        for (int k = 0; k < QUANTITIES; k++) {
            sum += mix(bits_of(all[k]) ^ mix((uint64_t)point * QUANTITIES + (uint64_t)k));
        }
        if (!(p->pressure > 0)) {
            fprintf(stderr, "unstructured: the gas is gone at point %d: fewer iterations\n", point);
            exit(1);
        }
    }
    return sum_of_all(sum);
}

int main(int argc, char **argv) {
    uint64_t side = (uint64_t)opt.side;
    struct setting settings[] = {{"side", "points of the cube each way", &side, 2, 400, NULL}, {"iters", "iterations", &opt.iters, 0, UINT64_C(1) << 40, NULL}};
    begin_run(&argc, &argv);
    PARSE(argc, argv, settings);
    opt.side = (int)side;
    build();

    double begin = seconds();
    for (uint64_t iter = 0; iter < opt.iters; iter++) {
        over_edges();
        over_faces();
        over_points(merged());
        updated();
    }
    double end = seconds();

    uint64_t sum = checksum(), all_edges = sum_of_all((uint64_t)edge_count), all_faces = sum_of_all((uint64_t)face_count);
    if (self() == 0) {
        printf("unstructured %d points, %" PRIu64 " edges, %" PRIu64 " faces, %" PRIu64 " iterations\n", all_points(), all_edges, all_faces, opt.iters);
        print_results(sum, end - begin);
    }
    end_run();
    return 0;
}
