//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
//# nodes: 2 3
/* Synchronisation by plain loads and stores only: a token goes round, and with it data that was written before it; Peterson's
 * algorithm between pairs of nodes. Both need sequential consistency. */
#include <blizzard.h>
#include <stdio.h>

int main(void) {
    unsigned me = bz_node(), nodes = bz_nodes();
    volatile uint64_t *base = me == 0 ? bz_alloc(64 * 1024) : 0;
    if (me == 0)
        bz_publish(0, (void *)base);
    base = bz_lookup(0);
    volatile uint64_t *token = base, *data = base + 8, *wants = base + 4096, *turn = base + 5000, *count = base + 6000;
    uint64_t wrong = 0;
    for (uint64_t lap = 0; lap < 20; lap++) {
        while (*token != lap * nodes + me) {
        }
        for (int i = 0; i < 4; i++) {
            wrong += data[i * 5] != lap * nodes + me;
            data[i * 5]++;
        }
        ++*token;
    }
    bz_barrier();
    unsigned pair = me / 2, side = me % 2;
    if (me / 2 * 2 + 1 < nodes)
        for (int i = 0; i < 50; i++) {
            volatile uint64_t *want = wants + pair * 64, *who = turn + pair * 64, *counted = count + pair * 64;
            want[side * 8] = 1;
            *who = 1 - side;
            while (want[(1 - side) * 8] && *who == 1 - side) {
            }
            uint64_t now = counted[0];
            counted[0] = now + 1;
            want[side * 8] = 0;
        }
    bz_barrier();
    for (unsigned p = 0; p < nodes / 2; p++)
        wrong += count[p * 64] != 100;
    wrong = bz_reduce_sum_u64(wrong);
    if (me == 0)
        printf("%llu wrong\n", (unsigned long long)wrong);
    return wrong != 0;
}
