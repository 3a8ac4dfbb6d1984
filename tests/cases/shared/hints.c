//# uses: blizzard
//# flags: -O0 | -O2 -fno-tree-loop-distribute-patterns
//# compilers: gcc
//# nodes: 2 4
/* Prefetch, check-out, check-in, get and put in a red-black relaxation: with the hints in the right places, in wrong ones, and over memory that is none
 * of theirs, the sums are those of the plain program. */
#include "blizzard.h"
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 24, COLUMNS = 200, SWEEPS = 6 };

int main(void) {
    unsigned node = bz_node(), nodes = bz_nodes();
    if (node == 0)
        bz_publish(0, bz_alloc(ROWS * COLUMNS * sizeof(long)));
    long (*grid)[COLUMNS] = bz_lookup(0);
    for (unsigned r = node; r < ROWS; r += nodes)
        for (unsigned c = 0; c < COLUMNS; c++)
            grid[r][c] = (long)(r * 31 + c * 17) % 1000;
    bz_barrier();
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (unsigned colour = 0; colour < 2; colour++) {
            for (unsigned r = 1 + node; r < ROWS - 1; r += nodes) {
                if (r % 2 != colour)
                    continue;
                bz_prefetch(grid[r - 1], sizeof grid[r], 0);
                bz_check_out(grid[r], sizeof grid[r], 1);
                bz_check_out(grid[r + 1], sizeof grid[r], sweep % 2);
                for (unsigned c = 1; c < COLUMNS - 1; c++)
                    grid[r][c] = (grid[r][c] + grid[r - 1][c] + grid[r + 1][c]) / 3;
                bz_check_in(grid[r], sizeof grid[r]);
                bz_prefetch((char *)grid[r] + 1, 0, 1);
                bz_check_in(grid[(r + 5) % ROWS] + 3, 777);
            }
            bz_barrier();
        }
    /* Each node moves rows of the one behind it, through memory of its own. */
    static long rows[ROWS][COLUMNS];
    for (unsigned r = (node + 1) % nodes; r < ROWS; r += nodes)
        bz_get(rows[r], grid[r] + 1, sizeof grid[r] - 2 * sizeof(long));
    bz_barrier();
    for (unsigned r = (node + 1) % nodes; r < ROWS; r += nodes)
        bz_put(grid[ROWS - 1 - r] + 1, rows[r], sizeof grid[r] - 2 * sizeof(long));
    bz_get(rows, rows[1], 0);
    bz_barrier();
    int local = 5;
    bz_prefetch(&local, sizeof local, 1);
    bz_check_out(NULL, 100, 1);
    bz_check_in(&local, sizeof local);
    if (node == 0) {
        long sum = local;
        for (unsigned r = 0; r < ROWS; r++)
            for (unsigned c = 0; c < COLUMNS; c++)
                sum = sum * 31 % 1000003 + grid[r][c];
        printf("%ld\n", sum);
    }
    bz_barrier();
    return 0;
}
