/* The memory that a case's accesses go to.
 *
 * Built plainly, it is ordinary private memory. Built with -DSHARED and run on several nodes, it is shared memory, node 0
 * runs the case, and the other nodes do nothing but take the blocks away from it all the time, without changing a byte:
 * so the same accesses miss at every point where they can miss, and the output must stay that of the plain program.
 *
 * Use: arena_begin(bytes) first thing in main, ARENA for the memory (4096-byte aligned), arena_end() last. A case that works
 * on a few blocks only defines ARENA_HOT, a list of {offset, bytes}, so that these are the ones taken away.
 */
#ifndef ARENA_H
#define ARENA_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static unsigned char *arena_memory;
#define ARENA arena_memory

#ifdef SHARED
#include <blizzard.h>
static volatile uint64_t *arena_stop;

/* Takes blocks, by chance for writing or for reading, until told to stop. */
static void arena_steal(unsigned char *memory, size_t bytes) {
#ifdef ARENA_HOT
    static const size_t ranges[][2] = {ARENA_HOT};
#else
    const size_t ranges[][2] = {{0, bytes}};
#endif
    uint64_t random = 88172645463325252u + bz_node();
    while (!*arena_stop) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        const size_t *range = ranges[(random >> 50) % (sizeof ranges / sizeof *ranges)];
        unsigned char *block = memory + range[0] + random % (range[1] / 64) * 64;
        if (random >> 40 & 3)
            __asm__ volatile("lock addq $0, %0" : "+m"(*(uint64_t *)block) : : "cc");
        else
            (void)*(volatile uint64_t *)block;
    }
}
#endif

static void arena_begin(size_t bytes) {
    bytes = (bytes + 4095) & ~(size_t)4095;
#ifdef SHARED
    if (bz_node() == 0) {
        arena_stop = (volatile uint64_t *)bz_alloc(64);
        bz_publish(1, (void *)arena_stop);
        bz_publish(0, bz_alloc(bytes + 4096));
    }
    arena_stop = (volatile uint64_t *)bz_lookup(1);
    arena_memory = (unsigned char *)(((uintptr_t)bz_lookup(0) + 4095) & ~(uintptr_t)4095);
    if (bz_node() != 0) {
        arena_steal(arena_memory, bytes);
        exit(0);
    }
#else
    arena_memory = (unsigned char *)mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena_memory == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
#endif
}

static void arena_end(void) {
#ifdef SHARED
    *arena_stop = 1;
#endif
}

/* A hash that depends on the order of what is put in. */
static uint64_t case_hash = 14695981039346656037u;
static inline void mix(uint64_t value) {
    case_hash = (case_hash ^ value) * 1099511628211u;
    case_hash ^= case_hash >> 29;
}
static void mix_bytes(const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        mix(((const unsigned char *)bytes)[i]);
}

/* Prints what the case found so far under `name` and starts over. */
static void report(const char *name) {
    printf("%s %016llx\n", name, (unsigned long long)case_hash);
    case_hash = 14695981039346656037u;
}

/* Says what is wrong, where the expected value is known, and counts it. */
static int case_failures;
#define EXPECT(condition, ...)                     \
    do {                                           \
        if (!(condition) && ++case_failures < 20) { \
            printf("WRONG %s: ", #condition);      \
            printf(__VA_ARGS__);                   \
            printf("\n");                          \
        }                                          \
    } while (0)

static int case_result(void) {
    printf("%d wrong\n", case_failures);
    fflush(stdout);
    arena_end();
    return case_failures != 0;
}
#endif
