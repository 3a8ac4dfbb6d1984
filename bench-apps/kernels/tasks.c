/* Task queue: tiles of a picture of the Mandelbrot set, in one queue for each node, under locks.
 *
 * Each node takes tiles from its own queue, then from others'. Tiles differ much in work, so most of the picture is drawn by whoever has time. The pixels
 * are in one array, by rows; a row of a tile is one block.
 * Source: the queues of Raytrace and Volrend in "The SPLASH-2 Programs" (1995), section 3.
 */
#include "kernel.h"

#define TILE 16u
#define MOST_ROUNDS 400u

struct queue {
    uint64_t next, end;
    char rest[48];
};

static uint64_t tiles; /* in each direction */
static uint32_t *pixels;

static void draw(uint64_t tile) {
    const uint64_t width = tiles * TILE, top = tile / tiles * TILE, left = tile % tiles * TILE;
    for (uint64_t y = top; y < top + TILE; y++)
        for (uint64_t x = left; x < left + TILE; x++) {
            double re = -2.2 + 3.2 * (double)x / (double)width, im = -1.6 + 3.2 * (double)y / (double)width;
            double a = 0, b = 0;
            uint32_t n = 0;
            for (; n < MOST_ROUNDS && a * a + b * b < 4; n++) {
                double next = a * a - b * b + re;
                b = 2 * a * b + im, a = next;
            }
            pixels[y * width + x] = n;
        }
}

int main(int argc, char **argv) {
    tiles = kernel_size(argc, argv, 512, TILE, 1 << 14) / TILE;
    const uint64_t count = tiles * tiles, all = count * TILE * TILE;
    pixels = shared_by(0, 0, all * sizeof *pixels);
    struct queue **queues = calloc(nodes, sizeof *queues);
    bz_lock_t **locks = calloc(nodes, sizeof *locks);
    if (!queues || !locks) return 1;
    for (unsigned node = 0; node < nodes; node++) {
        queues[node] = shared_by(node, 1 + node, sizeof **queues);
        if (me == node) bz_publish(200 + node, bz_lock_new());
        locks[node] = bz_lookup(200 + node);
    }
    queues[me]->next = first_of(me, count), queues[me]->end = first_of(me + 1, count);

    measure();
    for (unsigned k = 0; k < nodes;) {
        const unsigned from = (me + k) % nodes;
        bz_lock(locks[from]);
        uint64_t tile = queues[from]->next;
        const int is_left = tile < queues[from]->end;
        queues[from]->next += (uint64_t)is_left;
        bz_unlock(locks[from]);
        if (is_left) draw(tile);
        else k++;
    }
    measured("tasks");

    uint64_t sum = 0;
    for (uint64_t i = first_of(me, all); i < first_of(me + 1, all); i++)
        sum += mix(i << 32 | pixels[i]);
    return finish("tasks", sum);
}
