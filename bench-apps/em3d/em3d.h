/* EM3D: propagation of electromagnetic waves through a three-dimensional object, as a bipartite graph. What all forms have in common.
 *
 * E nodes hold electric and H nodes magnetic field values. An iteration computes new E values as weighted sums of
 * neighbouring H values, then new H values from the E values, with a barrier after each phase. Only the owner of a graph
 * node writes it, so there are no locks; a run node reads another's values where an edge crosses between them.
 * Source: Reinhardt, "Mechanisms for Distributed Shared Memory" (1996), section 2.4.1 and figure 2-6.
 *
 * Data. As in the thesis's version for transparent shared memory, the values are not inside the graph nodes: each part of
 * the graph has its values packed in one array (eight to a 64-byte block), and a graph node points to its own. Where values are kept, and how a
 * run node gets those of others, is the form's: each form is a file that includes this one and defines what is declared under "The form".
 *
 * The graph does not depend on the number of run nodes. It is cut into 64 parts; run node k of n owns the parts
 * from 64k/n to 64(k+1)/n. A local edge leads to a random node of the same part. A remote edge (--remote-percent of all)
 * leads to a random node of a part that lies 28 to 36 parts further on, counted in a ring: about half the graph away,
 * thus on another run node for three and more of them, and in more than nine of ten cases for two. All random numbers are
 * hashes of the seed and of what they are for, and each sum has a fixed order; so the checksum, which is taken over the
 * bits of all values, is the same for any number of run nodes and for the plain program.
 *
 * Standard output: two lines, from node 0, that depend on the options only. Standard error: one line with the time of the
 * iterations and the share of the edges that cross between run nodes.
 */
#define APPLICATION "em3d"
#include "../common.h"

#define PARTS 64u
#define REMOTE_NEAREST 28u
#define REMOTE_SPAN 9u

enum { E, H, KINDS };

struct graph_node {
    double *value; /* in the packed array of the node's part */
    int edge_count;
    const double *weights;            /* edge_count of them */
    const double *const *neighbours;  /* the values of the adjacent nodes of the other kind */
    struct graph_node *next;          /* next node of this kind on this run node */
};

static struct {
    uint64_t nodes;
    uint64_t degree;
    double remote_percent;
    uint64_t iters;
    uint64_t seed;
} opt = {192000, 5, 5.0, 20, 1};

/* Where the values of each own part are, and of the others if the form has addresses for them. Private. */
static double *values[KINDS][PARTS];
static struct graph_node *list[KINDS];
static uint64_t crossing_edges;

/* ---- The form ---- */

/* Memory that its owner alone uses; NULL if there is none. */
static void *local_memory(size_t bytes);
/* Memory for the values of an own part. */
static double *value_memory(int kind, unsigned part, uint64_t count);
/* All own parts have their values. */
static void placed(void);
/* Where a value of any part is read, in the phases behind. */
static const double *neighbour(int kind, unsigned part, uint64_t index);
/* The graph is built, on this run node. */
static void built(void);
/* This run node has new values of `kind`. On return neighbours may be read, and values of the other kind be written. */
static void computed(int kind);

enum purpose { INITIAL, WEIGHT, IS_REMOTE, PART, INDEX };

static uint64_t draw(enum purpose purpose, int kind, uint64_t node, uint64_t edge) {
    return mix(mix(mix(opt.seed * 16 + purpose * 2 + (uint64_t)kind) + node) + edge);
}

/* In [0, 1), all 53 bits. */
static double unit(uint64_t random) { return (double)(random >> 11) * 0x1p-53; }

/* ---- the partition ---- */

static uint64_t per_kind(void) { return opt.nodes / 2; }

static uint64_t part_begin(uint64_t part) { return part * per_kind() / PARTS; }

static unsigned owner(unsigned part) {
    unsigned n = run_nodes(), node = part * n / PARTS;
    /* The first guess can be one off where n does not divide 64. */
    while (part < PARTS * node / n) node--;
    while (part >= PARTS * (node + 1) / n) node++;
    return node;
}

/* ---- building the graph: every run node builds its own parts ---- */

static void place_values(unsigned part) {
    uint64_t first = part_begin(part), count = part_begin(part + 1) - first;
    for (int kind = E; kind < KINDS; kind++) {
        double *v = need(value_memory(kind, part, count));
        for (uint64_t i = 0; i < count; i++) v[i] = unit(draw(INITIAL, kind, first + i, 0));
        values[kind][part] = v;
    }
}

static void link_part(int kind, unsigned part) {
    uint64_t first = part_begin(part), count = part_begin(part + 1) - first;
    struct graph_node *nodes = need(local_memory(count * sizeof *nodes));
    double *weights = need(local_memory(count * opt.degree * sizeof *weights));
    const double **neighbours = need(local_memory(count * opt.degree * sizeof *neighbours));
    for (uint64_t i = 0; i < count; i++) {
        uint64_t id = first + i;
        for (uint64_t e = 0; e < opt.degree; e++) {
            unsigned to = part;
            if (unit(draw(IS_REMOTE, kind, id, e)) * 100.0 < opt.remote_percent)
                to = (part + REMOTE_NEAREST + (unsigned)(draw(PART, kind, id, e) % REMOTE_SPAN)) % PARTS;
            uint64_t choices = part_begin(to + 1) - part_begin(to);
            neighbours[i * opt.degree + e] = neighbour(!kind, to, draw(INDEX, kind, id, e) % choices);
            /* Small enough for the values to stay finite for thousands of iterations. */
            weights[i * opt.degree + e] = (unit(draw(WEIGHT, kind, id, e)) - 0.5) / (double)(4 * opt.degree);
            if (to != part && owner(to) != self()) crossing_edges++;
        }
        nodes[i].value = values[kind][part] + i;
        nodes[i].edge_count = (int)opt.degree;
        nodes[i].weights = weights + i * opt.degree;
        nodes[i].neighbours = neighbours + i * opt.degree;
        nodes[i].next = i + 1 < count ? &nodes[i + 1] : list[kind];
    }
    if (count) list[kind] = nodes;
}

static void build(void) {
    for (unsigned part = 0; part < PARTS; part++)
        if (owner(part) == self()) place_values(part);
    placed();
    for (int kind = E; kind < KINDS; kind++)
        for (unsigned part = 0; part < PARTS; part++)
            if (owner(part) == self()) link_part(kind, part);
    built();
}

/* ---- the computation ---- */

static void compute(int kind) {
    for (struct graph_node *n = list[kind]; n != NULL; n = n->next) {
        double value = *n->value;
        for (int i = 0; i < n->edge_count; i++) value -= *n->neighbours[i] * n->weights[i];
        *n->value = value;
    }
}

/* Over the bits of all values; does not depend on the order in which the parts are added. */
static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int kind = E; kind < KINDS; kind++)
        for (unsigned part = 0; part < PARTS; part++) {
            if (owner(part) != self()) continue;
            uint64_t first = part_begin(part), count = part_begin(part + 1) - first;
            for (uint64_t i = 0; i < count; i++) {
                sum += mix(bits_of(values[kind][part][i]) ^ mix((first + i) * KINDS + (uint64_t)kind));
            }
        }
    return sum_of_all(sum);
}

int main(int argc, char **argv) {
    struct setting settings[] = {{"nodes", "graph nodes, E and H together, an even number", &opt.nodes, 2 * PARTS, UINT64_C(1) << 40, NULL},
                                 {"degree", "edges of each graph node", &opt.degree, 1, 1 << 20, NULL},
                                 {"remote-percent", "share of the edges that lead half the graph away", NULL, 0, 0, &opt.remote_percent},
                                 {"iters", "iterations", &opt.iters, 0, UINT64_C(1) << 40, NULL},
                                 {"seed", "of the random graph", &opt.seed, 0, UINT64_C(1) << 40, NULL}};
    begin_run(&argc, &argv);
    PARSE(argc, argv, settings);
    if (opt.nodes % 2) {
        if (self() == 0) fprintf(stderr, "em3d: --nodes %" PRIu64 ": there are as many E as H nodes\n", opt.nodes);
        exit(2);
    }
    build();

    double begin = seconds();
    for (uint64_t iter = 0; iter < opt.iters; iter++) {
        compute(E);
        computed(E);
        compute(H);
        computed(H);
    }
    double end = seconds();

    uint64_t sum = checksum();
    uint64_t crossing = sum_of_all(crossing_edges);
    if (self() == 0) {
        printf("em3d %" PRIu64 " graph nodes, degree %" PRIu64 ", %g %% remote, %" PRIu64 " iterations, seed %" PRIu64 "\n",
               opt.nodes, opt.degree, opt.remote_percent, opt.iters, opt.seed);
        print_results(sum, end - begin);
        fprintf(stderr, "em3d: %.2f %% of the edges cross\n", 100.0 * (double)crossing / (double)(opt.nodes * opt.degree));
    }
    end_run();
    return 0;
}
