//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
//# nodes: 2 3 4
/* What blizzard.h promises: node numbers, zeroed and aligned memory that any node frees and that comes back zeroed, slots that wait
 * and can be published again, locks, trylock, fetch-and-add with the old value, reductions with the same bits everywhere. */
#include "check.h"
#include <string.h>

static int all_zero(const volatile unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i]) return 0;
    return 1;
}

int main(void) {
    const unsigned me = node = bz_node(), nodes = bz_nodes();
    CHECK(me < nodes && nodes >= 1);

    /* Each node allocates, its neighbour checks, writes and frees, round and round: always zeroed. */
    for (unsigned round = 0; round < 12; round++) {
        size_t bytes = (size_t)1 << (6 + round % 9);
        volatile unsigned char *mine = round % 2 ? bz_alloc(bytes) : bz_alloc_on((me + round) % nodes, bytes);
        CHECK(mine && ((uintptr_t)mine & 63) == 0);
        CHECK(all_zero(mine, bytes));
        mine[0] = (unsigned char)(me + 1), mine[bytes - 1] = (unsigned char)round;
        bz_publish(10 + me, (void *)mine);
        bz_barrier();
        unsigned char expected = (unsigned char)((me + 1) % nodes + 1);
        volatile unsigned char *other = bz_lookup(10 + (me + 1) % nodes);
        CHECK(other[0] == expected && other[bytes - 1] == (bytes == 1 ? expected : round));
        for (size_t i = 0; i < bytes; i++)
            other[i] = 0xff;
        bz_barrier();
        CHECK(mine[bytes / 2] == 0xff);
        bz_barrier();
        bz_free((void *)other);
        bz_barrier();
    }
    bz_free(0);
    void *nothing = bz_alloc(0);
    bz_free(nothing);

    /* The same address everywhere; pointers in shared memory work. */
    struct item { struct item *volatile next; volatile uint64_t value; };
    struct item *volatile *head = me == 0 ? bz_alloc(64) : 0;
    if (me == 0)
        bz_publish(0, (void *)head);
    head = bz_lookup(0);
    CHECK(bz_lookup(0) == (void *)head);
    bz_lock_t *lock = me == nodes - 1 ? bz_lock_new() : 0;
    if (lock)
        bz_publish(1023, lock);
    lock = bz_lookup(1023);
    for (uint64_t i = 0; i < 50; i++) {
        struct item *item = bz_alloc(sizeof *item);
        item->value = i * nodes + me;
        bz_lock(lock);
        item->next = *head;
        *head = item;
        bz_unlock(lock);
    }
    bz_barrier();
    uint64_t sum = 0, count = 0;
    for (struct item *i = *head; i; i = i->next)
        sum += i->value, count++;
    uint64_t n = 50 * (uint64_t)nodes;
    CHECK(count == n && sum == n * (n - 1) / 2);

    /* trylock: exactly one holder. */
    volatile uint64_t *holders = me == 0 ? bz_alloc(128) : 0;
    if (me == 0)
        bz_publish(1, (void *)holders);
    holders = bz_lookup(1);
    for (int i = 0; i < 200; i++)
        if (bz_trylock(lock)) {
            CHECK(holders[0] == 0);
            holders[0] = me + 1;
            holders[8]++;
            CHECK(holders[0] == me + 1);
            holders[0] = 0;
            bz_unlock(lock);
        }
    bz_barrier();
    CHECK(holders[8] >= 1 && holders[8] <= 200ull * nodes);

    /* Fetch-and-add: every old value exactly once. */
    uint64_t *counter = me == 0 ? bz_alloc(64) : 0;
    if (me == 0)
        bz_publish(2, counter);
    counter = bz_lookup(2);
    uint64_t old_sum = 0;
    for (int i = 0; i < 500; i++)
        old_sum += bz_fetch_add_u64(counter, 1);
    uint64_t total = 500 * (uint64_t)nodes;
    CHECK(bz_reduce_sum_u64(old_sum) == total * (total - 1) / 2);
    CHECK(*(volatile uint64_t *)counter == total);

    /* Reductions: the same bits on all nodes, whatever the order of arrival. */
    uint64_t *bits = me == 0 ? bz_alloc(64 * 64) : 0;
    if (me == 0)
        bz_publish(3, bits);
    bits = bz_lookup(3);
    for (int i = 0; i < 20; i++) {
        double reduced = bz_reduce_sum_f64(0.1 * (me + 1) + 1e-17 * i + 1e10 * (me & 1));
        uint64_t image;
        __builtin_memcpy(&image, &reduced, 8);
        ((volatile uint64_t *)bits)[me * 8] = image;
        bz_barrier();
        for (unsigned k = 0; k < nodes; k++)
            CHECK(((volatile uint64_t *)bits)[k * 8] == image);
        CHECK(bz_reduce_sum_u64(me + 1) == (uint64_t)nodes * (nodes + 1) / 2);
        bz_barrier();
    }
    /* Publishing again. */
    for (int i = 1; i <= 5; i++) {
        if (me == 0)
            bz_publish(7, (void *)(uintptr_t)(i * 64));
        bz_barrier();
        CHECK(bz_lookup(7) == (void *)(uintptr_t)(i * 64));
        bz_barrier();
    }
    return failed();
}
