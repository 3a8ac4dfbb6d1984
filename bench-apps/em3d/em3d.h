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
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* This run node, and how many there are; right when begin_run has returned. */
static unsigned self(void);
static unsigned run_nodes(void);
static void begin_run(int *argc, char ***argv);
static void end_run(void);
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
/* Of a number on each run node; all call it. */
static uint64_t sum_of_all(uint64_t value);

/* ---- random numbers: a hash of what they are for (the finaliser of splitmix64) ---- */

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

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

static void *need(void *p) {
    if (!p) {
        fprintf(stderr, "em3d: out of memory\n");
        exit(1);
    }
    return p;
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
                union { double value; uint64_t bits; } v = {.value = values[kind][part][i]};
                sum += mix(v.bits ^ mix((first + i) * KINDS + (uint64_t)kind));
            }
        }
    return sum_of_all(sum);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- options ---- */

static void usage(FILE *to) {
    fprintf(to,
            "usage: em3d [--nodes N] [--degree D] [--remote-percent P] [--iters I] [--seed S]\n"
            "  --nodes           graph nodes, E and H together; even, at least 128   [192000]\n"
            "  --degree          edges of each graph node                            [5]\n"
            "  --remote-percent  share of the edges that lead half the graph away    [5]\n"
            "  --iters           iterations                                          [20]\n"
            "  --seed            of the random graph                                 [1]\n");
}

static void bad(const char *option, const char *text, const char *why) {
    if (self() == 0) fprintf(stderr, "em3d: --%s %s: %s\n", option, text, why);
    exit(2);
}

static uint64_t integer(const char *option, const char *text, uint64_t least, uint64_t most) {
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno) bad(option, text, "not a number");
    if (v < least || v > most) bad(option, text, "out of range");
    return v;
}

static double percent(const char *option, const char *text) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end) bad(option, text, "not a number");
    if (!(v >= 0 && v <= 100)) bad(option, text, "not between 0 and 100");
    return v;
}

static void parse(int argc, char **argv) {
    static const struct option names[] = {
        {"nodes", required_argument, NULL, 'n'}, {"degree", required_argument, NULL, 'd'},
        {"remote-percent", required_argument, NULL, 'r'}, {"iters", required_argument, NULL, 'i'},
        {"seed", required_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int c;
    opterr = self() == 0;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (c) {
        case 'n': opt.nodes = integer("nodes", optarg, 2 * PARTS, UINT64_C(1) << 40); break;
        case 'd': opt.degree = integer("degree", optarg, 1, 1 << 20); break;
        case 'r': opt.remote_percent = percent("remote-percent", optarg); break;
        case 'i': opt.iters = integer("iters", optarg, 0, UINT64_C(1) << 40); break;
        case 's': opt.seed = integer("seed", optarg, 0, UINT64_C(1) << 40); break;
        case 'h':
            if (self() == 0) usage(stdout);
            exit(0);
        default:
            if (self() == 0) usage(stderr);
            exit(2);
        }
    }
    if (optind != argc) {
        if (self() == 0) usage(stderr);
        exit(2);
    }
    if (opt.nodes % 2) bad("nodes", "odd", "there are as many E as H nodes");
}

int main(int argc, char **argv) {
    begin_run(&argc, &argv);
    parse(argc, argv);
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
        printf("checksum 0x%016" PRIx64 "\n", sum);
        fprintf(stderr, "em3d: %.6f s for the iterations on %u nodes; %.2f %% of the edges cross\n", end - begin, run_nodes(),
                100.0 * (double)crossing / (double)(opt.nodes * opt.degree));
    }
    end_run();
    return 0;
}
