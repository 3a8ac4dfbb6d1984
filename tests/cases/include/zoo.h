/* Runs the pieces of a zoo.inc table on operands at all kinds of places and prints a hash per piece. */
#ifndef ZOO_H
#define ZOO_H
#include "arena.h"
#include "lab.h"

struct zoo_piece {
    const char *name;
    void (*run)(void);
    uint64_t mask;
};
extern struct zoo_piece zoo[];

/* Where the operands lie: offsets from a page boundary. */
static const int zoo_places[] = {0, 8, 64, 3, 61, 57, 33, -1, -2, -4, -7, -15, -31, -33, -63};
enum { ZOO_PLACES = sizeof zoo_places / sizeof zoo_places[0] };

static uint64_t zoo_place_free(uint64_t value) {
    uint64_t offset = value - (uint64_t)ARENA;
    return offset < 65536 ? offset : value;
}

/* Makes the memory around both operands a pattern. */
static void zoo_memory(uint64_t salt) {
    for (int i = 0; i < 512; i++) {
        ARENA[4096 - 256 + i] = (unsigned char)((i * 37 + salt * 11) ^ (i >> 3));
        ARENA[12288 - 256 + i] = (unsigned char)((i * 101 + salt * 7) ^ (i >> 2));
    }
}

static void zoo_one(const struct zoo_piece *piece, int place, uint64_t salt) {
    struct lab in, out;
    lab_fill(&in, salt, salt * 0x9e3779b97f4a7c15u >> 13 & STATUS);
    in.r[RDI] = (uint64_t)ARENA + 4096 + zoo_places[place];
    in.r[RSI] = (uint64_t)ARENA + 12288 + zoo_places[(place * 7 + salt) % ZOO_PLACES];
    in.r[RCX] = salt % 5;
    zoo_memory(salt);
    lab_run(piece->run, &in, &out);
    for (int i = 0; i < 16; i++)
        mix(i == RSP ? out.r[i] - LAB_RSP : zoo_place_free(out.r[i]));
    mix(out.flags & (piece->mask | DF));
    mix_bytes(ARENA + 4096 - 256, 512);
    mix_bytes(ARENA + 12288 - 256, 512);
}

/* `step`: offsets that are no multiple of it are left out (instructions that need alignment). */
static void zoo_run(int step) {
    int count = 0;
    for (const struct zoo_piece *piece = zoo; piece->name; piece++, count++) {
        for (int place = 0; place < ZOO_PLACES; place++)
            if (zoo_places[place] % step == 0)
                zoo_one(piece, place, (uint64_t)(count + place * 3));
        report(piece->name);
    }
    printf("%d pieces\n", count);
}
#endif
