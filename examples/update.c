/* update.c - a protocol of an application's own, on tempest.h: EM3D with updates (Reinhardt 1996, section 2.4.1).
 *
 * Electric and magnetic values form a bipartite graph. Each node of the run owns a part of both and computes the new values of one kind from
 * its neighbours of the other. A protocol that invalidates needs four messages for each value that crosses a border; this one needs
 * one, for a whole block:
 * - In the first iteration, faults fetch blocks from their homes, which remember who has asked.
 * - From then on, a home sends each of its blocks to those that have it at the end of the phase that has changed it, and everybody waits for
 *   as many updates as it has blocks. No invalidation, no request, and no barrier: an edge leads both ways, so whoever needs my values also sends
 *   me values, and cannot change what I still read.
 *
 * cc -O2 update.c $(blizzard config --cflags --libs) -o update && blizzard run -n 4 ./update [VALUES [ITERATIONS]]
 */
#include <blizzard.h>
#include <stdio.h>
#include <stdlib.h>
#include <tempest.h>

enum { DEGREE = 5, MOST = 64, PER_BLOCK = TPPI_TAG_BLK_SIZE / sizeof(double), PER_PAGE = TPPI_PAGE_SIZE / sizeof(double), UPDATE_MODE = 1 };

/* The two kinds of values, each in an array of pages that are dealt out to the nodes in contiguous parts. */
enum { ELECTRIC, MAGNETIC };
static long pages, values;
static double *value[2];

static TPPI_NodeId home_of(long page) { return (TPPI_NodeId)(page * (long)TPPI_num_nodes / pages); }

/* ---- The protocol ---- */

/* At the home, by kind and block: the nodes that have a copy, a bit each. Elsewhere: blocks that this node has, by kind. */
static uint64_t *readers[2];
static int copies[2];
/* Updates that are expected, minus those that have come. */
static volatile int missing[2];

static int kind_of(void *va) { return (char *)va >= (char *)value[MAGNETIC] ? MAGNETIC : ELECTRIC; }
static long block_of(void *va) { return ((char *)va - (char *)value[kind_of(va)]) / TPPI_TAG_BLK_SIZE; }
static char *address(int kind, int block) { return (char *)value[kind] + (long)block * TPPI_TAG_BLK_SIZE; }

/* A page of another node: mapped here with nothing in it. The access then faults on the block. */
static void page_fault(void *va, int pc, int is_write) {
    (void)pc, (void)is_write;
    char *page = (char *)((uintptr_t)va & ~(uintptr_t)(TPPI_PAGE_SIZE - 1));
    long number = (page - (char *)value[kind_of(va)]) / TPPI_PAGE_SIZE;
    if (!TPPI_alloc_and_map(page, UPDATE_MODE, TPPI_Blk_Invalid, home_of(number), NULL)) abort();
    TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);
}

static void block_arrives(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    int kind = TPPI_recv_W(), block = TPPI_recv_W();
    TPPI_recv_Ba(address(kind, block), TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RO);
    copies[kind]++;
    TPPI_resume_va(address(kind, block), TPPI_TAG_BLK_SIZE);
}

static void block_is_wanted(TPPI_NodeId src, int size) {
    (void)size;
    int kind = TPPI_recv_W(), block = TPPI_recv_W();
    readers[kind][block] |= (uint64_t)1 << src;
    TPPI_send_WWBa(src, block_arrives, kind, block, address(kind, block), TPPI_TAG_BLK_SIZE, TPPI_Blk_No_Tag_Change);
}

static void read_fault(void *va, void *usr_ptr, TPPI_NodeId home) {
    (void)usr_ptr;
    TPPI_change_blk_acc(va, TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalid_To_Busy);
    TPPI_send_WW(home, block_is_wanted, kind_of(va), (int)block_of(va));
}

static void update_arrives(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    int kind = TPPI_recv_W(), block = TPPI_recv_W();
    TPPI_recv_Ba(address(kind, block), TPPI_TAG_BLK_SIZE, TPPI_Blk_No_Tag_Change);
    TPPI_wakeup(&missing[kind]);
}

/* The phase that has written the own blocks of this kind is over. */
static void end_phase(int kind, long first_page, long end_page) {
    for (long block = first_page * (PER_PAGE / PER_BLOCK); block < end_page * (PER_PAGE / PER_BLOCK); block++)
        for (TPPI_NodeId to = 0; readers[kind][block] >> to; to++)
            if (readers[kind][block] >> to & 1)
                TPPI_send_WWBa(to, update_arrives, kind, (int)block, address(kind, (int)block), TPPI_TAG_BLK_SIZE,
                               TPPI_Blk_No_Tag_Change);
    if (copies[kind] == 0) return;
    for (int i = 1; i < copies[kind]; i++) TPPI_atomic_incr(&missing[kind]);
    TPPI_sleep(&missing[kind]);
}

/* ---- The application: no word about messages ---- */

/* Neighbours and weights of the own values, by kind. */
struct neighbours { long at[MOST]; double weight[MOST]; int count; };
static struct neighbours *graph[2];

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
    return x ^ x >> 29;
}

/* Every node computes the same graph and keeps its part, each edge at both ends. */
static void connect(long e, long m, double weight, long first, long end) {
    for (int kind = 0; kind < 2; kind++) {
        long own = kind == ELECTRIC ? e : m;
        if (own < first || own >= end) continue;
        struct neighbours *n = &graph[kind][own - first];
        if (n->count == MOST) abort();
        n->at[n->count] = kind == ELECTRIC ? m : e;
        n->weight[n->count++] = weight;
    }
}

static void compute(int kind, long first, long end) {
    for (long i = first; i < end; i++) {
        const struct neighbours *n = &graph[kind][i - first];
        double v = value[kind][i];
        for (int k = 0; k < n->count; k++) v -= n->weight[k] * value[!kind][n->at[k]];
        value[kind][i] = v;
    }
}

int main(int argc, char **argv) {
    values = argc > 1 ? atol(argv[1]) : 8192;
    int iterations = argc > 2 ? atoi(argv[2]) : 10;
    pages = (values + PER_PAGE - 1) / PER_PAGE;
    values = pages * PER_PAGE;
    value[ELECTRIC] = (double *)TPPI_SEGMENT_BASE;
    value[MAGNETIC] = value[ELECTRIC] + values;
    TPPI_register_page_fault_handler(page_fault);
    TPPI_register_blk_acc_fault_handler(UPDATE_MODE, TPPI_Blk_Invalid, TPPI_ReadAccess, read_fault);

    long first_page = 0, end_page = 0;
    while (first_page < pages && home_of(first_page) < TPPI_self_address) first_page++;
    for (end_page = first_page; end_page < pages && home_of(end_page) == TPPI_self_address;) end_page++;
    long first = first_page * PER_PAGE, end = end_page * PER_PAGE;
    for (int kind = 0; kind < 2; kind++) {
        readers[kind] = calloc((size_t)(values / PER_BLOCK), sizeof *readers[kind]);
        graph[kind] = calloc((size_t)(end - first + 1), sizeof *graph[kind]);
        for (long p = first_page; p < end_page; p++)
            TPPI_alloc_and_map((char *)value[kind] + p * TPPI_PAGE_SIZE, UPDATE_MODE, TPPI_Blk_Writable, TPPI_self_address, NULL);
        for (long i = first; i < end; i++) value[kind][i] = (double)(mix((uint64_t)i * 2 + (uint64_t)kind) >> 40) / (1 << 24);
    }
    for (long e = 0; e < values; e++)
        for (int k = 0; k < DEGREE; k++) {
            uint64_t r = mix((uint64_t)(e * DEGREE + k));
            long near = (e + (long)(r % 129) - 64 + values) % values, anywhere = (long)(r % (uint64_t)values);
            connect(e, k ? near : anywhere, (double)(r >> 44) / (1 << 23), first, end);
        }
    bz_barrier();

    for (int i = 0; i < iterations; i++) {
        compute(ELECTRIC, first, end);
        /* Nobody has electric values of the first phase yet: the next one fetches them. */
        if (i == 0) bz_barrier(); else end_phase(ELECTRIC, first_page, end_page);
        compute(MAGNETIC, first, end);
        end_phase(MAGNETIC, first_page, end_page);
    }

    bz_barrier();
    uint64_t sum = 0;
    for (int kind = 0; kind < 2; kind++)
        for (long i = first; i < end; i++) {
            union { double d; uint64_t bits; } v = {value[kind][i]};
            sum += mix(v.bits + (uint64_t)i * 3 + (uint64_t)kind);
        }
    sum = bz_reduce_sum_u64(sum);
    if (TPPI_self_address == 0) printf("%ld values of each kind, %d iterations: %016llx\n", values, iterations, (unsigned long long)sum);
    return 0;
}
