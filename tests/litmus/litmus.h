/* Litmus tests: a few plain stores and loads per node, on different blocks, very often; which combinations of results come out?
 *
 * A test defines ROLES (nodes taking part in one instance), act() (what a role does with its instance) and forbidden() (whether
 * the results of an instance contradict every interleaving of the roles' accesses in program order).
 *
 * Many independent instances are walked by all nodes in the same order between two barriers, so that a round costs no barrier.
 * Values rise from batch to batch, so nothing is reset: a load sees `now` (this batch's store) or `now - 1` (the last one's). Spare
 * nodes read and take blocks at random. Each node waits a little, by chance, in front of an instance.
 */
#include <blizzard.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* At least 10^5 rounds altogether: 500 instances in 210 batches, fewer batches when several groups of nodes play. The program's argument is another number of
 * batches. */
enum { INSTANCES = 500, BATCHES = 210 };

/* A variable alone in its block. */
typedef struct {
    volatile uint64_t value;
    char pad[56];
} cell;
/* What the roles of one instance saw. */
typedef struct {
    uint64_t seen[4][2];
} results;

static void act(int role, cell *x, cell *y, uint64_t now, uint64_t seen[2]);
static int forbidden(const results *r, const cell *x, const cell *y, uint64_t now);

static uint64_t random_state;
static uint64_t next_random(void) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return random_state;
}

int main(int count, char **list) {
    unsigned node = bz_node(), nodes = bz_nodes(), groups = nodes / ROLES;
    uint64_t batches = count > 1 ? strtoull(list[1], 0, 0) : BATCHES;
    if (groups == 0) {
        fprintf(stderr, "this test takes %d nodes\n", ROLES);
        return 2;
    }
    cell *cells = 0;
    uint64_t *shared = 0;
    if (node == 0) {
        cells = bz_alloc(groups * 2 * INSTANCES * sizeof(cell));
        shared = bz_alloc(groups * INSTANCES * sizeof(results));
        bz_publish(0, cells);
        bz_publish(1, shared);
    }
    cells = bz_lookup(0);
    results *all = bz_lookup(1);
    unsigned group = node / ROLES;
    int role = (int)(node % ROLES), spare = group >= groups;
    random_state = 0x9e3779b97f4a7c15u * (node + 1);
    uint64_t wrong = 0, rounds = 0, histogram[3][3] = {{0}};
    static uint64_t seen[INSTANCES][2];
    for (uint64_t batch = 1; batch <= (batches + groups - 1) / groups; batch++) {
        /* Two values per batch: 2+2W needs them. */
        uint64_t now = batch * 2;
        bz_barrier();
        for (unsigned i = 0; i < INSTANCES; i++) {
            uint64_t random = next_random();
            for (volatile unsigned wait = random % 64; wait; wait--) {
            }
            if (spare) {
                volatile uint64_t *at = &cells[(random >> 32) % (groups * 2 * INSTANCES)].value;
                (void)*at;
                continue;
            }
            cell *x = &cells[(group * INSTANCES + i) * 2], *y = x + 1;
            act(role, x, y, now, seen[i]);
        }
        bz_barrier();
        if (!spare)
            for (unsigned i = 0; i < INSTANCES; i++)
                for (int k = 0; k < 2; k++)
                    all[group * INSTANCES + i].seen[role][k] = seen[i][k];
        bz_barrier();
        if (node == 0)
            for (unsigned i = 0; i < groups * INSTANCES; i++) {
                const results *r = &all[i];
                wrong += forbidden(r, &cells[i * 2], &cells[i * 2 + 1], now) != 0;
                rounds++;
                uint64_t a = r->seen[ROLES - 1][0], b = r->seen[ROLES - 1][1];
                histogram[a == now ? 2 : a != 0][b == now ? 2 : b != 0]++;
            }
        bz_barrier();
    }
    if (node == 0) {
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++)
                if (histogram[a][b])
                    printf("last role saw %s, %s: %llu\n", a == 2 ? "new" : a ? "old" : "none", b == 2 ? "new" : b ? "old" : "none",
                           (unsigned long long)histogram[a][b]);
        printf("rounds %llu\nforbidden %llu\n", (unsigned long long)rounds, (unsigned long long)wrong);
    }
    return 0;
}
