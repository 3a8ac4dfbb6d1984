/* Heat spreading over a square plate, computed by all nodes on one shared grid.
 *
 * Each node computes a band of rows; only the rows at the edges of the bands travel between nodes. Build and run, in this folder:
 *
 *   cc -O2 $(blizzard config --cflags) heat.c $(blizzard config --libs) -o heat && blizzard run -n 4 -- ./heat
 *
 * The answer has the same digits on any number of nodes, and for ./heat by itself.
 */
#include <blizzard.h>
#include <stdio.h>

#ifndef SIDE
#define SIDE 254
#endif
#define STEPS 400

typedef double row_t[SIDE + 2];

int main(void) {
    unsigned me = bz_node(), n = bz_nodes();
    unsigned first = 1 + SIDE * me / n, last = SIDE * (me + 1) / n;

    /* Node 0 makes the two grids and tells the others where they are. Shared memory starts as zeros. */
    if (me == 0) {
        bz_publish(0, bz_alloc(sizeof(row_t) * (SIDE + 2)));
        bz_publish(1, bz_alloc(sizeof(row_t) * (SIDE + 2)));
    }
    row_t *now = bz_lookup(0), *next = bz_lookup(1);
    if (now == NULL || next == NULL) {
        fprintf(stderr, "heat: out of shared memory\n");
        return 1;
    }
    if (me == 0)
        for (unsigned x = 0; x < SIDE + 2; x++) now[0][x] = next[0][x] = 100.0; /* the upper edge is kept hot */
    bz_barrier();

    for (unsigned step = 0; step < STEPS; step++) {
        for (unsigned y = first; y <= last; y++)
            for (unsigned x = 1; x <= SIDE; x++)
                next[y][x] = 0.25 * (now[y - 1][x] + now[y + 1][x] + now[y][x - 1] + now[y][x + 1]);
        bz_barrier();
        row_t *t = now;
        now = next;
        next = t;
    }

    if (me == 0) {
        double middle = now[31][SIDE / 2]; /* printf gets a copy, not a pointer to shared memory */
        printf("temperature near the hot edge after %d steps: %.12f\n", STEPS, middle);
    }
    return 0;
}
