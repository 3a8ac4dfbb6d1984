//# flags: -O1 | -O2
//# nodes: 2 3
/* Loops test tags once for several iterations. All nodes run through the same blocks at the same time, each in words of its own, so blocks
 * leave in the middle of what was tested: at the polls, at misses of other accesses in the loop, and while a handler of the program runs,
 * which has loops of its own. A store that relies on what is true no more would be lost. */
#include <blizzard.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#define WORDS 2048
#define ROUNDS 60
#define STEP 4
#define FAR 96
#define LINE 16

typedef volatile unsigned word;

__attribute__((noinline)) static void upwards(word *p, word *end) {
    do {
        *p += 1;
        p += STEP;
    } while (p != end);
}

__attribute__((noinline)) static void downwards(word *p, word *start) {
    do {
        p -= STEP;
        *p += 3;
    } while (p != start);
}

/* Tags that lie further apart than those of one test. */
__attribute__((noinline)) static void far(word *p, word *end) {
    do {
        p[0] += 1;
        p[STEP] += 5;
        p += FAR;
    } while (p < end);
}

/* The first access has a check of its own, whose misses give away what was tested for the others. */
__attribute__((noinline)) static void gather(word *sum, const unsigned *index, word *a, word *b, long n) {
    long i = 0;
    do {
        a[i * STEP] += 1;
        sum[index[i]] += 1;
        b[i * STEP] += 2;
        i++;
    } while (i != n);
}

/* One address stays. */
__attribute__((noinline)) static void total(word *to, word *p, word *end) {
    do {
        *to += *p;
        p += STEP;
    } while (p != end);
}

__attribute__((noinline)) static long length(const volatile char *s) {
    const volatile char *p = s;
    while (*p++ == 'x')
        ;
    return p - s;
}

/* Elements of a table, whose index is not known when the loop's tests are made. */
__attribute__((noinline)) static void histogram(unsigned *bins, const unsigned char *p, const unsigned char *end) {
    do {
        bins[*p] += 1;
        p++;
    } while (p != end);
}

static volatile char *pages;
static word private_words[WORDS];
static int faults;
/* Words in blocks of their own: how many faults node 0 has had, and how many of them each other node has answered. */
static word *turns;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    faults++;
    mprotect((void *)((long)info->si_addr & -4096), 4096, PROT_READ | PROT_WRITE);
    /* Loops, which poll, and after which every address seems tested. */
    upwards(private_words, private_words + WORDS);
    downwards(private_words + WORDS, private_words);
    histogram((unsigned *)private_words, (unsigned char *)private_words, (unsigned char *)(private_words + 1));
    if (!turns) return;
    turns[0] += 1;
    for (unsigned n = 1; n < bz_nodes(); n++)
        while (turns[LINE * n] != turns[0])
            ;
}

__attribute__((noinline)) static void faulting(word *a, volatile char *page, word *b, long n) {
    long i = 0;
    do {
        a[i * STEP] += 1;
        page[i * 16] = 1;
        b[i * STEP] += 1;
        i++;
    } while (i != n);
}

int main(void) {
    unsigned me = bz_node() % STEP;
    word *all = 0;
    if (bz_node() == 0) bz_publish(0, bz_alloc((4 * WORDS + FAR * STEP + 256 + LINE * STEP) * sizeof *all));
    all = bz_lookup(0);
    word *a = all + me, *b = a + WORDS, *c = b + WORDS, *d = c + WORDS;
    static unsigned index[WORDS / STEP];
    for (unsigned i = 0; i < WORDS / STEP; i++)
        index[i] = (i * 37 % (WORDS / STEP)) * STEP;
    for (int r = 0; r < ROUNDS; r++) {
        upwards(a, a + WORDS);
        downwards(a + WORDS, a);
        gather(c, index, a, b, WORDS / STEP);
        far(d, d + WORDS - FAR);
    }
    bz_barrier();
    long wrong = 0;
    for (unsigned i = 0; i < WORDS; i += STEP) {
        wrong += a[i] != 5 * ROUNDS;
        wrong += b[i] != 2 * ROUNDS;
        wrong += c[i] != ROUNDS;
        unsigned at = i % FAR;
        wrong += i < WORDS - FAR && d[i] != (at == 0 ? ROUNDS : at == STEP ? 5 * ROUNDS : 0);
    }
    bz_barrier();
    total(d, a, a + WORDS);
    wrong += d[0] != (ROUNDS + 5 * ROUNDS * (WORDS / STEP));
    bz_barrier();

    long bytes = (WORDS / STEP) * 16;
    pages = mmap(0, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    for (int r = 0; r < ROUNDS; r++) {
        mprotect((void *)pages, bytes, PROT_READ);
        faulting(a, pages, b, WORDS / STEP);
    }
    bz_barrier();
    for (unsigned i = 0; i < WORDS; i += STEP)
        wrong += a[i] != 6 * ROUNDS || b[i] != 3 * ROUNDS;
    wrong += faults != ROUNDS * bytes / 4096;
    bz_barrier();

    /* Each node counts in words of its own of all of the table's blocks. */
    unsigned *bins = (unsigned *)d + WORDS - me + FAR * STEP;
    unsigned char *bytes_read = (unsigned char *)pages;
    mprotect((void *)pages, bytes, PROT_READ | PROT_WRITE);
    for (long i = 0; i < bytes; i++) bytes_read[i] = i * 37 % (256 / STEP) * STEP + me;
    faults = 0;
    for (int r = 0; r < ROUNDS; r++) {
        /* A fault in front of the instruction that makes the index, with loops of the handler in between. */
        mprotect((void *)pages, bytes, PROT_NONE);
        histogram(bins, bytes_read, bytes_read + bytes);
    }
    bz_barrier();
    for (unsigned i = me; i < 256; i += STEP) wrong += bins[i] != ROUNDS * bytes / (256 / STEP);
    wrong += faults != ROUNDS * bytes / 4096;
    bz_barrier();

    /* Node 0 may access the whole table when it begins, and nothing of it when the handler returns. */
    word *table = bins, *board = table + 256;
    if (me == 0) {
        for (unsigned i = 0; i < 256; i++) table[i] += 0;
        turns = board;
        mprotect((void *)pages, bytes, PROT_NONE);
        histogram(bins, bytes_read, bytes_read + bytes);
    } else {
        for (unsigned k = 1; k <= bytes / 4096; k++) {
            while (board[0] < k)
                ;
            for (unsigned i = me; i < 256; i += STEP) table[i] += 1;
            board[LINE * me] = k;
        }
    }
    bz_barrier();
    for (unsigned i = me; i < 256; i += STEP) {
        unsigned more = me == 0 ? bytes / (256 / STEP) : bytes / 4096;
        wrong += bins[i] != ROUNDS * bytes / (256 / STEP) + more;
    }
    bz_barrier();

    /* What one node has written, the others read from end to end. */
    volatile char *text = (volatile char *)all;
    if (bz_node() == 0) {
        for (int i = 0; i < 4 * WORDS; i++)
            text[i] = 'x';
        text[4 * WORDS - 1] = 0;
    }
    bz_barrier();
    wrong += length(text) != 4 * WORDS;
    wrong += length(text + 4 * WORDS - 3) != 3;
    long sum = bz_reduce_sum_u64(wrong);
    if (bz_node() == 0) printf("%ld wrong\n", sum);
    return 0;
}
