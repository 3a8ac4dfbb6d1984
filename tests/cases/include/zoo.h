/* Runs the pieces of a zoo.inc table on operands at all kinds of places and prints a hash per piece. */
#ifndef ZOO_H
#define ZOO_H
#ifndef ARENA_HOT
#define ARENA_HOT {4096 - 128, 256}, {12288 - 128, 256}
#endif
#include "arena.h"
#include "lab.h"

/* A shared run takes much longer: it uses a quarter of the places for each piece, all of them for some. */
#ifdef SHARED
enum { ZOO_SHARED = 1 };
#else
enum { ZOO_SHARED = 0 };
#endif

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

/* Makes the memory around both operands a pattern. By words, so that a shared run misses in the pieces rather than here. */
static void zoo_memory(uint64_t salt) {
    volatile uint64_t *first = (volatile uint64_t *)(ARENA + 4096 - 256), *second = (volatile uint64_t *)(ARENA + 12288 - 256);
    for (uint64_t i = 0; i < 64; i++) {
        first[i] = (i + salt) * 0x9e3779b97f4a7c15u ^ salt << 7;
        second[i] = (i * 3 + salt) * 0xc2b2ae3d27d4eb4fu;
    }
}

static void zoo_mix(void) {
    for (int i = -32; i < 32; i++)
        mix(((volatile uint64_t *)(ARENA + 4096))[i]), mix(((volatile uint64_t *)(ARENA + 12288))[i]);
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
    zoo_mix();
}

/* `step`: offsets that are no multiple of it are left out (instructions that need alignment). */
static void zoo_run(int step) {
    int count = 0;
    for (const struct zoo_piece *piece = zoo; piece->name; piece++, count++) {
        for (int place = 0; place < ZOO_PLACES; place++)
            if (zoo_places[place] % step == 0 && (!ZOO_SHARED || (place + count) % 4 == 0))
                zoo_one(piece, place, (uint64_t)(count + place * 3));
        report(piece->name);
    }
    printf("%d pieces\n", count);
}
#endif
