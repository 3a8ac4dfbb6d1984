/* Oct-tree: bodies in a box are put into a tree in parallel, under locks; then each body sums up the forces of all others, far ones as cells.
 *
 * A cell has eight children, each empty, a body or a cell. Who puts a body in goes down without a lock and locks the cell that it changes, one lock for
 * each sixty-fourth of the cells. A body that meets another one pushes both down into new cells. Shape and sums of the tree depend on
 * the bodies only. Each node's cells are at home there; bodies are in one array.
 * Source: Barnes and Hut, "A hierarchical O(N log N) force-calculation algorithm" (1986); "The SPLASH-2 Programs" (1995), section 3.
 */
#include "kernel.h"

#define LOCKS 64u
#define STEPS 3
#define DEPTH 20u

struct body {
    double at[3], mass, force[3], spare;
};

/* A child is 0, twice the number of a cell, or twice the number of a body plus 1; both count from 1. */
struct cell {
    uint32_t child[8];
    double at[3], mass;
};

static struct body *bodies;
static struct cell **cells; /* by node */
static uint64_t count, room;
static bz_lock_t *locks[LOCKS];
static uint64_t used;

static struct cell *cell(uint32_t number) { return &cells[(number - 1) / room][(number - 1) % room]; }

static uint32_t new_cell(void) {
    if (used == room) {
        fprintf(stderr, "octree: too many cells\n");
        exit(1);
    }
    uint32_t number = (uint32_t)(me * room + used++ + 1);
    memset(cell(number), 0, sizeof(struct cell));
    return number;
}

static unsigned octant(const struct body *b, unsigned depth) {
    unsigned which = 0;
    for (unsigned axis = 0; axis < 3; axis++)
        which = which * 2 + ((uint64_t)(b->at[axis] * (double)(1u << DEPTH)) >> (DEPTH - 1 - depth) & 1);
    return which;
}

static uint32_t load(uint32_t *child) { return __atomic_load_n(child, __ATOMIC_ACQUIRE); }

static void insert(uint32_t number) {
    uint32_t at = 1;
    const struct body *b = &bodies[number - 1];
    for (unsigned depth = 0; depth < DEPTH;) {
        uint32_t *child = &cell(at)->child[octant(b, depth)];
        uint32_t found = load(child);
        if (found && found % 2 == 0) {
            at = found / 2, depth++;
            continue;
        }
        bz_lock_t *lock = locks[at % LOCKS];
        bz_lock(lock);
        found = load(child);
        if (found == 0) {
            __atomic_store_n(child, 2 * number + 1, __ATOMIC_RELEASE);
            bz_unlock(lock);
            return;
        }
        if (found % 2) {
            /* The other body goes into a new cell, which takes its place; this one is tried again there. */
            uint32_t made = new_cell();
            cell(made)->child[octant(&bodies[found / 2 - 1], depth + 1)] = found;
            __atomic_store_n(child, 2 * made, __ATOMIC_RELEASE);
        }
        bz_unlock(lock);
    }
    fprintf(stderr, "octree: two bodies in one place\n");
    exit(1);
}

/* Mass and centre of a cell and what is below it. */
static void sum_up(uint32_t number) {
    struct cell *c = cell(number);
    double mass = 0, at[3] = {0, 0, 0};
    for (unsigned k = 0; k < 8; k++) {
        uint32_t child = c->child[k];
        if (!child) continue;
        if (child % 2 == 0) sum_up(child / 2);
        const double *where = child % 2 ? bodies[child / 2 - 1].at : cell(child / 2)->at;
        double its = child % 2 ? bodies[child / 2 - 1].mass : cell(child / 2)->mass;
        mass += its;
        for (unsigned axis = 0; axis < 3; axis++)
            at[axis] += its * where[axis];
    }
    c->mass = mass;
    for (unsigned axis = 0; axis < 3; axis++)
        c->at[axis] = at[axis] / mass;
}

static void pull(const double *to, const double *from, double mass, double *force) {
    double d[3], square = 1e-4;
    for (unsigned axis = 0; axis < 3; axis++)
        d[axis] = from[axis] - to[axis], square += d[axis] * d[axis];
    for (unsigned axis = 0; axis < 3; axis++)
        force[axis] += mass * d[axis] / (square * square);
}

static void forces(uint32_t number, double side, uint32_t of, double *force) {
    const struct cell *c = cell(number);
    const double *to = bodies[of - 1].at;
    double square = 0;
    for (unsigned axis = 0; axis < 3; axis++)
        square += (c->at[axis] - to[axis]) * (c->at[axis] - to[axis]);
    if (side * side < square) return pull(to, c->at, c->mass, force);
    for (unsigned k = 0; k < 8; k++) {
        uint32_t child = c->child[k];
        if (child && child % 2 == 0) forces(child / 2, side / 2, of, force);
        else if (child && child / 2 != of) pull(to, bodies[child / 2 - 1].at, bodies[child / 2 - 1].mass, force);
    }
}

int main(int argc, char **argv) {
    count = kernel_size(argc, argv, 8192, 8, 1 << 20);
    room = 2 * count + 64;
    bodies = shared_by(0, 0, count * sizeof *bodies);
    cells = calloc(nodes, sizeof *cells);
    if (!cells) return 1;
    for (unsigned node = 0; node < nodes; node++)
        cells[node] = shared_by(node, 1 + node, room * sizeof **cells);
    for (unsigned k = 0; k < LOCKS; k++) {
        if (me == k % nodes) bz_publish(100 + k, bz_lock_new());
        locks[k] = bz_lookup(100 + k);
    }
    const uint64_t first = first_of(me, count), end = first_of(me + 1, count);
    for (uint64_t i = first; i < end; i++) {
        for (unsigned axis = 0; axis < 3; axis++)
            bodies[i].at[axis] = (double)(mix(4 * i + axis) >> 11) * 0x1p-53;
        bodies[i].mass = 1 + (double)(mix(4 * i + 3) >> 11) * 0x1p-53;
    }

    measure();
    for (unsigned step = 0; step < STEPS; step++) {
        used = 0;
        if (me == 0) new_cell();
        bz_barrier();
        for (uint64_t i = first; i < end; i++)
            insert((uint32_t)(i + 1));
        bz_barrier();
        if (me == 0) sum_up(1);
        bz_barrier();
        for (uint64_t i = first; i < end; i++) {
            double force[3] = {0, 0, 0};
            forces(1, 1, (uint32_t)(i + 1), force);
            memcpy(bodies[i].force, force, sizeof force);
        }
        bz_barrier();
        for (uint64_t i = first; i < end; i++)
            for (unsigned axis = 0; axis < 3; axis++) {
                double moved = bodies[i].at[axis] + 1e-9 * bodies[i].force[axis];
                if (moved >= 0 && moved < 1) bodies[i].at[axis] = moved;
            }
        bz_barrier();
    }
    measured("octree");

    uint64_t sum = 0;
    for (uint64_t i = first; i < end; i++)
        for (unsigned axis = 0; axis < 3; axis++)
            sum += mix(bits_of(bodies[i].force[axis]) + mix(bits_of(bodies[i].at[axis]) + 3 * i + axis));
    return finish("octree", sum);
}
