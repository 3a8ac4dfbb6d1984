//# flags: -O0 | -O2
//# link: -pie | -no-pie -s
//# nodes: 2 3 4
/* Locked instructions of the program itself, from all nodes on the same words: exact totals; also words that lie across two blocks
 * and two pages, 16-byte compare-and-exchange, and a spin lock made of xchg. */
#include <blizzard.h>
#include <stdio.h>

int main(void) {
    unsigned me = bz_node(), nodes = bz_nodes();
    unsigned char *base = me == 0 ? bz_alloc(16384) : 0;
    if (me == 0)
        bz_publish(0, base);
    base = bz_lookup(0);
    base = (unsigned char *)(((uintptr_t)base + 4095) & ~4095ull);
    volatile uint64_t *add = (void *)base, *across = (void *)(base + 128 - 3), *pages = (void *)(base + 4096 - 5);
    volatile uint32_t *lock = (void *)(base + 256), *plain = (void *)(base + 320);
    volatile uint64_t *pair = (void *)(base + 512);
    volatile unsigned char *byte = base + 640;
    volatile uint16_t *half = (void *)(base + 703);
    uint64_t rounds = 1000 / nodes * nodes, mine = rounds / nodes;
    bz_barrier();
    for (uint64_t i = 0; i < mine; i++) {
        __asm__ volatile("lock incq %0" : "+m"(*add) : : "cc");
        if (i % 4 == 0) {
            __asm__ volatile("lock addq $3, %0" : "+m"(*across) : : "cc");
            uint64_t five = 5;
            __asm__ volatile("lock xaddq %1, %0" : "+m"(*pages), "+r"(five) : : "cc");
        }
        __asm__ volatile("lock incb %0" : "+m"(*byte) : : "cc");
        __asm__ volatile("lock addw $7, %0" : "+m"(*half) : : "cc");
        uint64_t low = pair[0], high = pair[1];
        unsigned char done;
        do
            __asm__ volatile("lock cmpxchg16b %1\n setz %0"
                             : "=q"(done), "+m"(*(unsigned __int128 *)pair), "+a"(low), "+d"(high)
                             : "b"(low + 1), "c"(high + 2) : "cc");
        while (!done);
        uint32_t taken;
        do {
            taken = 1;
            __asm__ volatile("xchg %0, %1" : "+r"(taken), "+m"(*lock));
        } while (taken);
        *plain += 1;
        *lock = 0;
        uint32_t old = __atomic_load_n((uint32_t *)(base + 768), __ATOMIC_SEQ_CST);
        while (!__atomic_compare_exchange_n((uint32_t *)(base + 768), &old, old * 3 + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        }
        __atomic_fetch_or((uint64_t *)(base + 832), 1ull << (i % 64), __ATOMIC_RELAXED);
    }
    bz_barrier();
    uint32_t power = 0;
    for (uint64_t i = 0; i < rounds; i++)
        power = power * 3 + 1;
    uint64_t quarter = (mine + 3) / 4 * nodes;
    int right = *add == rounds && *across == 3 * quarter && *pages == 5 * quarter && *byte == (unsigned char)rounds &&
                *half == (uint16_t)(7 * rounds) && pair[0] == rounds && pair[1] == 2 * rounds && *plain == rounds &&
                *(volatile uint32_t *)(base + 768) == power && *(volatile uint64_t *)(base + 832) == ~0ull;
    uint64_t wrong = bz_reduce_sum_u64(!right);
    if (me == 0)
        printf("%llu nodes are wrong\n", (unsigned long long)wrong);
    if (!right)
        printf("node %u: %llu %llu %llu %u %u %llu %llu %u\n", me, (unsigned long long)*add, (unsigned long long)*across,
               (unsigned long long)*pages, *byte, *half, (unsigned long long)pair[0], (unsigned long long)pair[1], *plain);
    return wrong != 0;
}
