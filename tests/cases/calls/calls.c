//# flags: -O0 | -O1 | -O2 | -O3 | -Os
//# link: -pie | -no-pie | -pie -s
/* Tail calls (direct, indirect, mutual, with stack arguments), recursion of all kinds, function pointers in tables. */
#include "arena.h"

#define NOINLINE __attribute__((noinline))
typedef uint64_t (*step)(uint64_t, unsigned);
static uint64_t ping(uint64_t a, unsigned n), pong(uint64_t a, unsigned n), pang(uint64_t a, unsigned n);
static step volatile steps[] = {ping, pong, pang};

NOINLINE static uint64_t ping(uint64_t a, unsigned n) { return n == 0 ? a : pong(a * 3 + 1, n - 1); }
NOINLINE static uint64_t pong(uint64_t a, unsigned n) { return n == 0 ? ~a : pang(a ^ a >> 9, n - 1); }
NOINLINE static uint64_t pang(uint64_t a, unsigned n) { return n == 0 ? a + 1 : steps[a % 3](a + n, n - 1); }

NOINLINE static uint64_t many(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    return a + b * 3 + c * 5 + d * 7 + e * 11 + f * 13 + g * 17 + h * 19;
}
NOINLINE static uint64_t shuffled(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    return many(h, g, f, e, d, c, b, a);
}

NOINLINE static unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0)
        return n + 1;
    return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}
NOINLINE static uint64_t fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

static int queens(int n, unsigned columns, unsigned left, unsigned right) {
    unsigned all = (1u << n) - 1;
    if (columns == all)
        return 1;
    int count = 0;
    for (unsigned free = all & ~(columns | left | right); free; free &= free - 1) {
        unsigned bit = free & -free;
        count += queens(n, columns | bit, (left | bit) << 1, (right | bit) >> 1);
    }
    return count;
}

struct node {
    struct node *left, *right;
    int key;
};
static struct node *insert(struct node *tree, int key) {
    if (!tree) {
        tree = (struct node *)calloc(1, sizeof *tree);
        tree->key = key;
    } else if (key < tree->key)
        tree->left = insert(tree->left, key);
    else if (key > tree->key)
        tree->right = insert(tree->right, key);
    return tree;
}
static void walk(const struct node *tree, void (*visit)(int)) {
    if (!tree)
        return;
    walk(tree->left, visit);
    visit(tree->key);
    walk(tree->right, visit);
}
static void visit(int key) { mix((uint64_t)key); }

/* Deep recursion: return addresses on many stack pages. */
NOINLINE static uint64_t deep(unsigned n) {
    volatile char pad[200];
    pad[n % 200] = (char)n;
    return n == 0 ? 1 : deep(n - 1) * 3 + (unsigned char)pad[n % 200];
}

int main(void) {
    mix(ping(1, 1000));
    mix(pang(77, 999));
    mix(shuffled(1, 2, 3, 4, 5, 6, 7, 8));
    mix(ackermann(2, 300));
    mix(fibonacci(22));
    mix((uint64_t)queens(8, 0, 0, 0));
    struct node *tree = 0;
    for (int i = 0; i < 500; i++)
        tree = insert(tree, i * 7919 % 1009);
    walk(tree, visit);
    mix(deep(20000));
    report("calls");
    return 0;
}
