//# flags: -O2
//# link: -pie | -no-pie -s
//# with: strings_pieces.S ../include/lab.S
//# shared: 2
/* movs, stos, lods, scas and cmps in all sizes, with every prefix, in both directions, with counts from 0 to several blocks,
 * on overlapping and separate operands; registers and flags afterwards are compared, also when the count is zero. */
#define ARENA_HOT {8192 + 1984, 384}, {20480 + 1984, 384}
#include "zoo.h"

static const uint64_t counts[] = {0, 1, 2, 9, 65, 200};

static void operands(int data, struct lab *in) {
    volatile uint64_t *to = (volatile uint64_t *)(ARENA + 8192), *from = (volatile uint64_t *)(ARENA + 20480);
    for (uint64_t i = 0; i < 512; i++) {
        to[i] = data == 2 ? i * 0x9e3779b97f4a7c15u : 0x4141414141414141u;
        from[i] = data == 2 ? i * 0xc2b2ae3d27d4eb4fu : 0x4141414141414141u;
    }
    if (data == 1)
        for (int i = 0; i < 4096; i += 97)
            ARENA[8192 + i] = 0x42;
    in->r[RAX] = data == 0 ? 0x4242424242424242u : 0x4141414141414141u;
}

int main(void) {
    arena_begin(65536);
    static const int places[][2] = {{2048, 2048}, {2049, 2107}, {2047, 2040}, {2000, 2111}};
    for (const struct zoo_piece *piece = zoo; piece->name; piece++) {
        uint64_t salt = ZOO_SHARED ? (uint64_t)(piece - zoo) : 0;
        for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int data = 0; data < 3; data++)
                for (int backward = 0; backward < 2; backward++) {
                    struct lab in, out;
                    const int *place = places[salt++ % 4];
                    if (ZOO_SHARED && salt % 3)
                        continue;
                    lab_fill(&in, salt, (salt * 0x9e3779b97f4a7c15u >> 13 & STATUS) | (backward ? DF : 0));
                    operands(data, &in);
                    in.r[RCX] = counts[c];
                    in.r[RDI] = (uint64_t)ARENA + 8192 + place[0];
                    in.r[RSI] = (uint64_t)ARENA + (salt % 5 ? 20480 : 8192 + 3) + place[1];
                    lab_run(piece->run, &in, &out);
                    for (int i = 0; i < 16; i++)
                        mix(i == RSP ? 0 : zoo_place_free(out.r[i]));
                    mix(out.flags & (STATUS | DF));
                    for (int i = 0; i < 512; i++)
                        mix(((volatile uint64_t *)(ARENA + 8192))[i]);
                    EXPECT((out.flags & DF) == (in.flags & DF), "%s changed the direction", piece->name);
                    EXPECT(out.r[RBX] == in.r[RBX] && out.r[R15] == in.r[R15], "%s changed a register", piece->name);
                }
        report(piece->name);
    }
    return case_result();
}
