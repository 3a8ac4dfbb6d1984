/* The program that `blizzard stress` runs on every node: random accesses to few shared words, each of them logged.
 *
 * The words. They lie in lines of 64 bytes, `per_page` of them in each page, `distance` bytes from each other; as many as fit make one block. The
 * pages belong by turn to `pieces` allocations, each made by another node, with a block size and homes of its own (`piece0` ...: bytes | homes << 16 |
 * node << 24 | protocol << 32, each 0 for the run's own). Line `l` has eight words: words 0..5 are written by one node each, (l + w) % nodes, with plain stores, and read by all; words
 * 6 and 7 are written by all with an atomic exchange. So the order of the writes to each word is known without any clock: it is the
 * writer's program order, or the chain of the values that the exchanges returned. Nodes write different words of one line and of one block all the
 * time (false sharing), and the same words.
 *
 * Of a piece with `update` the words are used in the same way, and now and then a node flushes. The words of a piece with `reduce` are added to by all nodes, behind a
 * check-out of their line; an operand is a well-mixed function of epoch, node and number of the access (`operand`).
 *
 * The values. Each write stores a value that no other write of the run stores: epoch, node and number of the access. A read thus
 * names the write that it has read from.
 *
 * The log, a file for each node. For each epoch a header of two 64-bit words, and then two words for each access:
 *     "BLZSTLOG" | epoch, number of accesses << 32
 *     location, kind << 32 (0 load, 1 store, 2 exchange, 3 flush, 4 check-out of the line, 5 add) | what a load or an exchange has returned, what is added; else 0
 * An epoch begins and ends at a barrier, so the checker can take one epoch after the other. It is `rewriter/src/cli/stress`, which also
 * gives the arguments. Without the argument `folder` the log goes to standard output, as lines of hexadecimal digits.
 */
#include "workload.h"
#include <blizzard.h>
#include <emmintrin.h>
#include <fcntl.h>

enum { WORDS = 8, OWNED = 6, LINE = 64, PAGE = 4096, PIECES = 4, LOAD = 0, STORE = 1, SWAP = 2, FLUSH = 3, OPEN = 4, ADD = 5 };

struct access {
    uint64_t what, value;
};

static char *shared[PIECES];
/* As `bz_attr_t` has them. */
static uint64_t protocols[PIECES];
static int flushes;
static uint64_t lines, per_page, distance, pieces;
static unsigned node, nodes;

static inline volatile uint64_t *word_at(uint64_t line, uint64_t word) {
    uint64_t page = line / per_page;
    return (volatile uint64_t *)(shared[page % pieces] + page / pieces * PAGE + line % per_page * distance + word * 8);
}

static inline uint64_t protocol_of(uint64_t line) { return protocols[line / per_page % pieces]; }

/* Whether the line is added to, and not stored to. */
static inline int is_reduced(uint64_t line) { return (protocol_of(line) & 0xff) == BZ_PROTOCOL_REDUCE; }

static inline uint64_t mixed(uint64_t id) {
    id = (id ^ id >> 30) * 0xbf58476d1ce4e5b9u;
    id = (id ^ id >> 27) * 0x94d049bb133111ebu;
    return id ^ id >> 31;
}

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* What access `id` adds to the line: doubles are of both signs and of sizes so different that sums are rounded. */
static uint64_t operand(uint64_t line, uint64_t id) {
    uint64_t bits = mixed(id);
    if (protocol_of(line) == BZ_PROTOCOL_REDUCE_BY(BZ_BY_SUM, BZ_OF_F64))
        return (bits & 0x800fffffffffffff) | (1003 + (bits >> 52 & 31)) << 52;
    return protocol_of(line) == BZ_PROTOCOL_REDUCE_BY(BZ_BY_OR, BZ_OF_U64) ? 1ull << (bits & 63) : bits;
}

static uint64_t combined(uint64_t line, uint64_t a, uint64_t b) {
    switch (protocol_of(line)) {
    case BZ_PROTOCOL_REDUCE_BY(BZ_BY_SUM, BZ_OF_F64): return bits_of(double_of(a) + double_of(b));
    case BZ_PROTOCOL_REDUCE_BY(BZ_BY_MIN, BZ_OF_I64): return (int64_t)a < (int64_t)b ? a : b;
    case BZ_PROTOCOL_REDUCE_BY(BZ_BY_MAX, BZ_OF_U64): return a > b ? a : b;
    case BZ_PROTOCOL_REDUCE_BY(BZ_BY_OR, BZ_OF_U64): return a | b;
    default: return a + b;
    }
}

static inline struct access note(uint64_t kind, uint64_t line, uint64_t word, uint64_t value) {
    return (struct access){(line * WORDS + word) | kind << 32, value};
}

static void write_all(int file, const void *from, size_t bytes) {
    const char *at = from;
    while (bytes) {
        ssize_t written = write(file, at, bytes);
        if (written <= 0) {
            perror("workload: cannot write");
            exit(3);
        }
        at += written, bytes -= (size_t)written;
    }
}

/* The bytes as lines of digits, two for each byte: standard output is what comes back from other hosts. */
static void print_all(const void *from, size_t bytes) {
    enum { IN_LINE = 2048 };
    static const char digits[] = "0123456789abcdef";
    static char line[2 * IN_LINE + 1];
    const unsigned char *at = from;
    while (bytes) {
        size_t count = bytes < IN_LINE ? bytes : IN_LINE;
        for (size_t i = 0; i < count; i++)
            line[2 * i] = digits[at[i] >> 4], line[2 * i + 1] = digits[at[i] & 15];
        line[2 * count] = '\n';
        write_all(STDOUT_FILENO, line, 2 * count + 1);
        at += count, bytes -= count;
    }
}

/* A word of the line that this node stores to, drawn from those it has there; OWNED if it has none. */
static inline uint64_t own_word(uint64_t line, uint64_t random) {
    uint64_t own = (node + nodes - line % nodes) % nodes;
    if (own >= OWNED)
        return OWNED;
    return own + random % ((OWNED - own + nodes - 1) / nodes) * nodes;
}

/* Six accesses without a loop between them, so without a poll: what one of them waits for can bring news that the next must see. */
static inline uint64_t play_straight(struct access *log, uint64_t id, uint64_t random) {
    uint64_t line[6], word[6];
    volatile uint64_t *at[6];
    uint64_t value[6] = {0};
    for (int i = 0; i < 6; i++) {
        uint64_t more = next_random();
        line[i] = (more >> 32) % lines, word[i] = more >> 8 & 7;
        at[i] = word_at(line[i], word[i]);
    }
    uint64_t first = own_word(line[0], random), fourth = own_word(line[3], random >> 8);
    int stores = random & 1 && first < OWNED && fourth < OWNED && !is_reduced(line[0]) && !is_reduced(line[3]);
    if (stores && random & 2)
        line[1] = line[4] = line[5], word[1] = word[4] = word[5], at[1] = at[4] = at[5];
    if (stores) {
        word[0] = first, word[3] = fourth;
        at[0] = word_at(line[0], first), at[3] = word_at(line[3], fourth);
        *at[0] = id;
        value[1] = *at[1];
        value[2] = *at[2];
        *at[3] = id + 3;
        value[4] = *at[4];
        value[5] = *at[5];
    } else {
        value[0] = *at[0];
        value[1] = *at[1];
        value[2] = *at[2];
        value[3] = *at[3];
        value[4] = *at[4];
        value[5] = *at[5];
    }
    for (int i = 0; i < 6; i++)
        log[i] = note(stores && i % 3 == 0 ? STORE : LOAD, line[i], word[i], value[i]);
    return 6;
}

/* Allocates this node's pieces, and finds all. */
static void allocate(void) {
    uint64_t pages = (lines + per_page - 1) / per_page;
    for (uint64_t k = 0; k < pieces; k++) {
        char name[] = "piece0";
        name[5] = (char)(name[5] + k);
        uint64_t kept = argument(name);
        protocols[k] = kept >> 32;
        flushes |= protocols[k] == BZ_PROTOCOL_UPDATE;
        if (k % nodes != node)
            continue;
        bz_attr_t attributes = {.block_bytes = kept & 0xffff, .homes = kept >> 16 & 0xff, .protocol = (uint32_t)protocols[k]};
        if (attributes.homes == BZ_HOMES_NODE)
            attributes.node = (uint32_t)((kept >> 24 & 0xff) % nodes);
        void *memory = bz_alloc_with(&attributes, (pages - k + pieces - 1) / pieces * PAGE);
        if (!memory) {
            fprintf(stderr, "workload: no shared memory\n");
            exit(3);
        }
        bz_publish((unsigned)k, memory);
    }
    for (uint64_t k = 0; k < pieces; k++)
        shared[k] = bz_lookup((unsigned)k);
}

/* One epoch's accesses into `log`; as many as there is room for. */
static void play(struct access *log, uint64_t room, uint64_t epoch, uint64_t writes_percent, uint64_t stay_percent, uint64_t pause) {
    uint64_t line = 0;
    for (uint64_t at = 0; at < room;) {
        uint64_t random = next_random(), id = epoch << 26 | (uint64_t)node << 20 | at;
        if (random % 100 >= stay_percent)
            line = (random >> 32) % lines;
        if (pause && !(random >> 56))
            for (volatile uint64_t wait = (random >> 20) % pause; wait; wait--) {
            }
        uint64_t word = random >> 8 & 7, kind = random >> 50 & 15;
        if (kind == 2) {
            /* Hints move copies about and must not change what is read. */
            uint64_t other = (random >> 24) % lines;
            const void *hinted = (const void *)word_at(other, 0);
            int back = random >> 54 & 1;
            if (back && !is_reduced(other))
                bz_check_in(hinted, LINE);
            else if (!is_reduced(other))
                bz_prefetch(hinted, 2 * LINE, random >> 55 & 1);
        }
        if (kind == 3 && flushes && !(random >> 40 & 3)) {
            bz_flush();
            log[at++] = note(FLUSH, 0, 0, 0);
        } else if (kind == 0 && at + 6 <= room) {
            at += play_straight(log + at, id, random >> 20);
        } else if (is_reduced(line) && (random >> 12) % 100 < writes_percent && at + 3 <= room) {
            volatile uint64_t *element = word_at(line, word);
            bz_check_out((const void *)word_at(line, 0), LINE, 1);
            uint64_t old = *element, more = operand(line, id);
            *element = combined(line, old, more);
            log[at++] = note(OPEN, line, 0, 0);
            log[at++] = note(LOAD, line, word, old);
            log[at++] = note(ADD, line, word, more);
        } else if (!is_reduced(line) && (random >> 12) % 100 < writes_percent) {
            uint64_t own = own_word(line, random >> 48);
            if (word < OWNED && own < OWNED) {
                *word_at(line, own) = id;
                log[at++] = note(STORE, line, own, 0);
            } else {
                word = OWNED + (word & 1);
                log[at++] = note(SWAP, line, word, __atomic_exchange_n(word_at(line, word), id, __ATOMIC_SEQ_CST));
            }
        } else if (kind != 1 || at + 3 > room) {
            log[at++] = note(LOAD, line, word, *word_at(line, word));
        } else {
            /* Two words at once: from the last word of a line it takes both lines, if they are neighbours. The access holds both, so it
             * is as if the first were loaded before and after the second. */
            uint64_t next_line = line + (word == WORDS - 1), next_word = (word + 1) % WORDS;
            if (next_line == lines || word_at(next_line, next_word) != word_at(line, word) + 1)
                continue;
            __m128i both;
            __asm__ volatile("movdqu %1, %0" : "=x"(both) : "m"(*(const char(*)[16])word_at(line, word)));
            uint64_t halves[2];
            _mm_storeu_si128((__m128i *)halves, both);
            log[at++] = note(LOAD, line, word, halves[0]);
            log[at++] = note(LOAD, next_line, next_word, halves[1]);
            log[at++] = note(LOAD, line, word, halves[0]);
        }
    }
}

int main(int count, char **list) {
    argument_count = count, argument_list = list;
    node = bz_node(), nodes = bz_nodes();
    lines = argument("lines"), per_page = argument("per_page"), distance = argument("distance");
    uint64_t epochs = argument("epochs"), room = argument("accesses"), seed = argument("seed");
    uint64_t again = argument("again");
    uint64_t writes = argument("writes"), stay = argument("stay"), pause = argument("pause");
    if (find_argument("instruments")) {
        /* The words that rt/src/abi.rs calls `instrument`; a runtime without instruments leaves them alone. */
        volatile uint64_t *words = (volatile uint64_t *)argument("instruments");
        words[1] = argument("one_in"), words[2] = argument("longest"), words[3] = argument("planted");
        words[0] = argument("delays") ? seed * 0x9e3779b97f4a7c15u + node + 1 : 0;
    }
    random_state = (seed + 1) * 0xd1342543de82ef95u ^ (node + 1) * 0x9e3779b97f4a7c15u;
    random_state |= !random_state;
    for (int i = 0; i < 16; i++)
        next_random();
    pieces = argument("pieces");
    if (pieces == 0 || pieces > PIECES)
        return 3;
    allocate();
    const char *folder = find_argument("folder");
    int file = -1;
    if (folder) {
        char name[32];
        snprintf(name, sizeof name, "/node-%u.log", node);
        char *path = malloc(strlen(folder) + sizeof name);
        if (!path)
            return 3;
        strcat(strcpy(path, folder), name);
        file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (file < 0) {
            perror(path);
            return 3;
        }
    }
    struct access *log = malloc((room + 1) * sizeof *log);
    if (!log)
        return 3;
    uint64_t first_random = random_state;
    for (uint64_t epoch = 1; epoch <= epochs; epoch++) {
        if (again)
            random_state = first_random;
        memcpy(&log[0].what, "BLZSTLOG", 8);
        log[0].value = epoch | room << 32;
        bz_barrier();
        play(log + 1, room, epoch, writes, stay, pause);
        if (folder)
            write_all(file, log, (room + 1) * sizeof *log);
        else
            print_all(log, (room + 1) * sizeof *log);
    }
    return folder && close(file) != 0;
}
