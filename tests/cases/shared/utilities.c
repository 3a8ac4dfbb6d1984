//# flags: -O2
//# link: -pie
//# nodes: 2 3 8 11
/* Every call of the utility library on several nodes, more nodes than processors included: results must be those of one node where the program says
 * so, and exact counts everywhere. Data passes between shared and private memory on the way. */
#include <blizzard.h>
#include <stdio.h>
#include <string.h>

static unsigned wrong;
static char written[5000]; /* private; other nodes write here */

static void expect(int right, int line) {
    if (!right && wrong++ < 10) printf("node %u of %u: line %d\n", bz_node(), bz_nodes(), line);
}
#define EXPECT(right) expect(right, __LINE__)

struct shared {
    uint64_t word[16];
    double column[8][100];
    char text[20000];
};

int main(void) {
    unsigned me = bz_node(), n = bz_nodes();
    enum { ROUNDS = 60 };
    struct shared *all = NULL;
    if (me == 0) {
        all = bz_alloc(sizeof *all);
        bz_publish(0, all);
        bz_publish(1, bz_barrier_new());
        bz_publish(2, bz_event_new());
        all->word[4] = ~0ull; /* and */
        all->word[7] = ~0ull; /* min */
        all->word[9] = 1000;  /* signed min */
    }
    if (me == n - 1) bz_publish(3, bz_counter_new(5));
    all = bz_lookup(0);
    bz_barrier_t *barrier = bz_lookup(1);
    bz_event_t *event = bz_lookup(2);
    bz_counter_t *counter = bz_lookup(3);
    bz_barrier();

    /* Fetch-and-op on shared words. */
    for (unsigned i = 0; i < ROUNDS; i++) {
        bz_fetch_add_u64(&all->word[3], 2);
        bz_fetch_and_u64(&all->word[4], ~(1ull << me));
        bz_fetch_or_u64(&all->word[5], 1ull << (i % 60));
        bz_fetch_xor_u64(&all->word[6], 1);
        bz_fetch_min_u64(&all->word[7], 7 + me + i);
        bz_fetch_max_u64(&all->word[8], me * 100 + i);
        bz_fetch_op_u64(&all->word[9], BZ_MIN_I64, (uint64_t)-(int64_t)(me + i), 0);
        uint64_t seen = all->word[10];
        for (uint64_t old; (old = bz_compare_swap_u64(&all->word[10], seen, seen + 3)) != seen;) seen = old;
        double one = 1.0;
        uint64_t bits;
        memcpy(&bits, &one, sizeof bits);
        bz_fetch_op_u64(&all->word[11], BZ_ADD_F64, bits, 0);
        bz_counter_op(counter, BZ_ADD, 2, 0);
    }
    bz_barrier();
    double sum;
    memcpy(&sum, &all->word[11], sizeof sum);
    EXPECT(all->word[3] == 2ull * ROUNDS * n);
    EXPECT(all->word[4] == ~0ull << n);
    EXPECT(all->word[5] == (1ull << 60) - 1);
    EXPECT(all->word[6] == 0); /* an even number of rounds */
    EXPECT(all->word[7] == 7);
    EXPECT(all->word[8] == (n - 1) * 100 + ROUNDS - 1);
    EXPECT((int64_t)all->word[9] == -(int64_t)(n - 1 + ROUNDS - 1));
    EXPECT(all->word[10] == 3ull * ROUNDS * n);
    EXPECT(sum == (double)ROUNDS * n);
    EXPECT(bz_counter_op(counter, BZ_OR, 0, 0) == 5 + 2ull * ROUNDS * n);
    EXPECT(bz_swap_u64(&all->word[12], 0) == 0);

    /* Reductions: single values, a private vector that is no multiple of what travels at once, and one in shared memory. */
    EXPECT(bz_reduce_min_u64(me + 5) == 5);
    EXPECT(bz_reduce_max_u64(me + 5) == n + 4);
    EXPECT(bz_reduce_min_i64(-(int64_t)me) == -(int64_t)(n - 1));
    EXPECT(bz_reduce_max_f64(0.5 * me) == 0.5 * (n - 1));
    EXPECT(bz_reduce_sum_i64(-1) == -(int64_t)n);
    int64_t vector[27];
    for (int i = 0; i < 27; i++) vector[i] = (int64_t)me * i - 3;
    bz_reduce(BZ_REDUCE_SUM_I64, vector, 27);
    for (int i = 0; i < 27; i++) EXPECT(vector[i] == (int64_t)(n * (n - 1) / 2) * i - 3 * (int64_t)n);
    if (me < 8) {
        for (int i = 0; i < 100; i++) all->column[me][i] = me + i;
    }
    double spare[100] = {0};
    bz_reduce(BZ_REDUCE_MAX_F64, me < 8 ? all->column[me] : spare, 100);
    unsigned top = n < 8 ? n - 1 : 7;
    for (int i = 0; i < 100; i++) EXPECT((me < 8 ? all->column[me][i] : spare[i]) == top + i);

    /* Broadcasts from every node, into private and into shared memory. */
    static char bytes[20000];
    for (unsigned root = 0; root < n; root++) {
        size_t length = root == 0 ? 20000 : 1 + 700 * root;
        for (size_t i = 0; i < length; i++) bytes[i] = me == root ? (char)(i * 3 + root) : 'x';
        bz_broadcast(root, bytes, length);
        for (size_t i = 0; i < length; i++) EXPECT(bytes[i] == (char)(i * 3 + root));
    }

    /* A barrier for all but node 0, which sets an event that the others wait for; then the roles of the words change. */
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (me == 0) {
            all->word[0] = i + 1;
            bz_event_set(event);
        } else {
            bz_event_wait(event);
            EXPECT(all->word[0] == i + 1);
            bz_fetch_add_u64(&all->word[1], 1);
            int last = bz_barrier_wait(barrier, n - 1);
            EXPECT(all->word[1] == (uint64_t)(i + 1) * (n - 1));
            if (last) bz_fetch_add_u64(&all->word[2], 1);
        }
        bz_barrier();
        if (me == 0) bz_event_clear(event);
        bz_barrier();
    }
    if (n > 1) EXPECT(all->word[2] == ROUNDS);

    /* Remote writes into a global variable of the next node. */
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 7 + me);
    bz_remote_write((me + 1) % n, written + 3, bytes, 4900);
    bz_remote_fence();
    bz_barrier();
    for (size_t i = 0; i < 4900; i++) EXPECT(written[3 + i] == (char)(i * 7 + (me + n - 1) % n));
    EXPECT(written[2] == 0 && written[4903] == 0);

    uint64_t total = bz_reduce_sum_u64(wrong);
    if (me == 0) printf("%llu wrong\n", (unsigned long long)total);
    return total != 0;
}
