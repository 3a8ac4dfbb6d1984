/* The program that `blizzard bench miss --instructions` executes step by step on three nodes. Node 0 is the home of all blocks, node 1 misses,
 * node 2 has copies.
 *
 * Marks say where a miss begins and ends: moves of a constant that nothing else uses, which whoever steps the node knows by their bytes
 * (`rewriter/src/cli/bench/lockstep.rs`). The trap in front of a mark stops a node that runs. The last access of each kind is executed once more at the same instruction: then it does not miss.
 *
 * Arguments: name=value. `stride`: bytes from one block to the next. The program stops itself once, in front of everything that is stepped.
 */
#include "workload.h"
#include <blizzard.h>
#include <signal.h>

/* As in `lockstep.rs`. The access's kind is in rsi. */
#define BEGIN "0x4d495301"
#define END "0x4d495302"
#define SETTLE "0x4d495303"
#define FINISHED "0x4d495304"

/* In assembly, so that every compiler makes the same of them. */
__asm__(".text\n"
        ".globl marked_load\n"
        ".type marked_load, @function\n"
        "marked_load:\n"
        "    .cfi_startproc\n"
        "    int3\n"
        "    movl $" BEGIN ", %eax\n"
        "    movq (%rdi), %rdx\n"
        "    movl $" END ", %eax\n"
        "    movq %rdx, %rax\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size marked_load, . - marked_load\n"
        ".globl marked_store\n"
        ".type marked_store, @function\n"
        "marked_store:\n"
        "    .cfi_startproc\n"
        "    int3\n"
        "    movl $" BEGIN ", %eax\n"
        "    movq %rdx, (%rdi)\n"
        "    movl $" END ", %eax\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size marked_store, . - marked_store\n");

uint64_t marked_load(const uint64_t *at, uint64_t kind);
void marked_store(uint64_t *at, uint64_t kind, uint64_t value);

/* In the order of `instructions.rs`. */
enum kind { READ, WRITE, UPGRADE, READ_OWNED, WRITE_OWNED, UPGRADE_SHARED, KINDS };
/* What is added to the kind: the access does not miss; it is not counted. */
enum { HIT = 64, WARM_UP = 128 };
enum { BLOCKS = 5 };

static unsigned node;

static void expect(uint64_t found, uint64_t wanted) {
    if (found != wanted) {
        fprintf(stderr, "marked: node %u read %llu instead of %llu\n", node, (unsigned long long)found, (unsigned long long)wanted);
        exit(3);
    }
}

static void write_all(volatile uint64_t *blocks, uint64_t words, uint64_t value) {
    for (int i = 0; i < BLOCKS; i++)
        blocks[(uint64_t)i * words] = value;
}

static void read_all(volatile uint64_t *blocks, uint64_t words, uint64_t value) {
    for (int i = 0; i < BLOCKS; i++)
        expect(blocks[(uint64_t)i * words], value);
}

/* The misses of node 1, while the others wait in a barrier. */
static void measured(uint64_t *blocks, uint64_t words, enum kind kind, int is_warm, uint64_t value) {
    int is_load = kind == READ || kind == READ_OWNED;
    __asm__ volatile("int3\n\tmovl $" SETTLE ", %%eax" ::: "eax", "memory");
    for (int i = 0; i <= BLOCKS; i++) {
        int is_hit = i == BLOCKS;
        uint64_t *at = blocks + (uint64_t)(i - is_hit) * words, number = kind | (is_hit ? HIT : 0);
        /* The first miss in a row looks for the answer in another place first. */
        number |= is_warm && i > 0 ? 0 : WARM_UP;
        if (is_load)
            expect(marked_load(at, number), value);
        else
            marked_store(at, number, value + 1);
    }
}

/* All misses of one kind. First nobody but the home has the blocks; then nodes 1 and 2 take what they are to have. */
static void round_of(uint64_t *blocks, uint64_t words, enum kind kind, int is_warm) {
    static uint64_t value;
    value += 2;
    if (node == 0)
        write_all(blocks, words, value);
    bz_barrier();
    int is_owned = kind == READ_OWNED || kind == WRITE_OWNED;
    value += is_owned;
    if (node == 2 && is_owned)
        write_all(blocks, words, value);
    if ((node == 2 && kind == UPGRADE_SHARED) || (node == 1 && (kind == UPGRADE || kind == UPGRADE_SHARED)))
        read_all(blocks, words, value);
    bz_barrier();
    if (node == 1)
        measured(blocks, words, kind, is_warm, value);
    bz_barrier();
}

int main(int count, char **list) {
    argument_count = count, argument_list = list;
    node = bz_node();
    uint64_t stride = argument("stride");
    if (bz_nodes() != 3 || stride < 8 || stride % 8) {
        fprintf(stderr, "marked: wants three nodes, and blocks of words\n");
        return 3;
    }
    raise(SIGSTOP);
    if (node == 0)
        bz_publish(0, bz_alloc_on(0, BLOCKS * stride));
    uint64_t *blocks = bz_lookup(0);
    for (int is_warm = 0; is_warm < 2; is_warm++)
        for (int kind = 0; kind < KINDS; kind++)
            round_of(blocks, stride / 8, (enum kind)kind, is_warm);
    if (node == 1)
        __asm__ volatile("int3\n\tmovl $" FINISHED ", %%eax" ::: "eax", "memory");
    return 0;
}
