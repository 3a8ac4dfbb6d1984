/* tree.C - forces by a tree (Barnes and Hut, 1986) for the PARMACS macros: all processes put their bodies into one tree, under locks of its cells, and
 * take bodies to move from a self-scheduled loop.
 *
 * The tree's shape does not depend on the order of insertion, and each sum is made in the order of the tree, so any number of processes
 * computes the same.
 *
 *   blizzard parmacs tree.C > tree.c
 *   cc -std=gnu89 -O2 tree.c $(blizzard config --cflags --libs) -lm -o tree
 *   blizzard run -n 4 -- ./tree -p4 [-n BODIES] [-t STEPS]
 */
MAIN_ENV
#include <math.h>

#define LOCKS 512
#define CHUNK 16
#define SOFT 1e-4
#define NEAR 0.64
#define STEP 1e-3

/* What bodies and cells have in common comes first. */
struct point { int is_cell; double mass, x[2]; };
struct body { struct point at; double v[2], a[2]; };
struct cell { struct point at; double middle[2], half; long number; struct point *child[4]; };

struct shared {
    LOCKDEC(names) LOCKDEC(pool) ALOCKDEC(of_cell, LOCKS)
    BARDEC(step) BARDEC(built) BARDEC(summed) BARDEC(moved)
    GSDEC(chunks)
    long next, cells, interactions;
    struct cell *root, *cell;
    struct body *body;
} *g;
long processes = 1, bodies = 300, steps = 3;
/* Private to a process. */
long me, mine;

void work();

struct cell *new_cell(x, y, half)
double x, y, half;
{
    struct cell *c;
    long number, i;
    LOCK(g->pool)
    number = g->cells++;
    UNLOCK(g->pool)
    if (number >= 16 * bodies + 64) {
        fprintf(stderr, "bodies too close to each other\n");
        exit(1);
    }
    c = &g->cell[number];
    c->at.is_cell = 1;
    c->middle[0] = x;
    c->middle[1] = y;
    c->half = half;
    c->number = number;
    for (i = 0; i < 4; i++) c->child[i] = NULL;
    return c;
}

int quarter(c, p)
struct cell *c;
struct point *p;
{
    return (p->x[0] >= c->middle[0]) + 2 * (p->x[1] >= c->middle[1]);
}

void insert(p)
struct point *p;
{
    struct cell *c = g->root, *between;
    int q, done = 0;
    while (!done) {
        q = quarter(c, p);
        ALOCK(g->of_cell, c->number % LOCKS)
        if (c->child[q] == NULL) {
            c->child[q] = p;
            done = 1;
        } else if (!c->child[q]->is_cell) {
            between = new_cell(c->middle[0] + (q & 1 ? c->half : -c->half) / 2, c->middle[1] + (q & 2 ? c->half : -c->half) / 2, c->half / 2);
            between->child[quarter(between, c->child[q])] = c->child[q];
            c->child[q] = &between->at;
        }
        AULOCK(g->of_cell, c->number % LOCKS)
        if (!done) c = (struct cell *) c->child[q];
    }
}

void sum_up(c)
struct cell *c;
{
    int q, k;
    c->at.mass = c->at.x[0] = c->at.x[1] = 0;
    for (q = 0; q < 4; q++) {
        struct point *p = c->child[q];
        if (p == NULL) continue;
        if (p->is_cell) sum_up((struct cell *) p);
        c->at.mass += p->mass;
        for (k = 0; k < 2; k++) c->at.x[k] += p->mass * p->x[k];
    }
    for (k = 0; k < 2; k++) c->at.x[k] /= c->at.mass;
}

void pull(b, p)
struct body *b;
struct point *p;
{
    double dx = p->x[0] - b->at.x[0], dy = p->x[1] - b->at.x[1], far = dx * dx + dy * dy + SOFT, force;
    int q;
    if (p == &b->at) return;
    if (p->is_cell && 4 * ((struct cell *) p)->half * ((struct cell *) p)->half > NEAR * far) {
        for (q = 0; q < 4; q++) if (((struct cell *) p)->child[q]) pull(b, ((struct cell *) p)->child[q]);
        return;
    }
    mine++;
    force = p->mass / (far * sqrt(far));
    b->a[0] += force * dx;
    b->a[1] += force * dy;
}

int main(argc, argv)
int argc;
char **argv;
{
    long i, k, option;
    double sum = 0;
    unsigned long random = 12345;
    while ((option = getopt(argc, argv, "p:n:t:")) != -1) {
        if (option == 'p') processes = atol(optarg);
        else if (option == 'n') bodies = atol(optarg);
        else if (option == 't') steps = atol(optarg);
        else return 2;
    }
    MAIN_INITENV
    g = (struct shared *) G_MALLOC(sizeof(struct shared));
    g->cell = (struct cell *) G_MALLOC((16 * bodies + 64) * sizeof(struct cell));
    g->body = (struct body *) G_MALLOC(bodies * sizeof(struct body));
    LOCKINIT(g->names) LOCKINIT(g->pool) ALOCKINIT(g->of_cell, LOCKS)
    BARINIT(g->step) BARINIT(g->built) BARINIT(g->summed) BARINIT(g->moved)
    GSINIT(g->chunks)
    for (i = 0; i < bodies; i++) {
        g->body[i].at.mass = 1.0 / bodies;
        for (k = 0; k < 2; k++) {
            random = random * 6364136223846793005ul + 1442695040888963407ul;
            g->body[i].at.x[k] = (random >> 33) / 2147483648.0;
        }
    }
    CREATE(work, processes)
    WAIT_FOR_END(processes)
    for (i = 0; i < bodies; i++) sum += g->body[i].at.x[0] * (i % 13) + g->body[i].at.x[1] * (i % 7);
    printf("%ld bodies, %ld steps: %ld interactions, %ld cells, sum %.15g\n", bodies, steps, g->interactions, g->cells, sum);
    MAIN_END
}

void work()
{
    long step, i, k, chunk;
    LOCK(g->names)
    me = g->next++;
    UNLOCK(g->names)
    for (step = 0; step < steps; step++) {
        if (me == 0) {
            g->cells = 0;
            g->root = new_cell(0.5, 0.5, 1.0);
        }
        BARRIER(g->step, processes)
        for (i = me; i < bodies; i += processes) insert(&g->body[i].at);
        BARRIER(g->built, processes)
        if (me == processes - 1) sum_up(g->root);
        BARRIER(g->summed, processes)
        for (;;) {
            GETSUB(g->chunks, chunk, (bodies + CHUNK - 1) / CHUNK - 1, processes)
            if (chunk < 0) break;
            for (i = chunk * CHUNK; i < (chunk + 1) * CHUNK && i < bodies; i++) {
                g->body[i].a[0] = g->body[i].a[1] = 0;
                pull(&g->body[i], &g->root->at);
            }
        }
        for (i = bodies * me / processes; i < bodies * (me + 1) / processes; i++) {
            for (k = 0; k < 2; k++) {
                g->body[i].v[k] += g->body[i].a[k] * STEP;
                g->body[i].at.x[k] += g->body[i].v[k] * STEP;
            }
        }
        BARRIER(g->moved, processes)
    }
    LOCK(g->names)
    g->interactions += mine;
    UNLOCK(g->names)
    BARRIER(g->moved, processes)
}
