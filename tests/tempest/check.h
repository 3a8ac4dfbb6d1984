/* Helpers of the tests of tempest.h. */
#include <blizzard.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tempest.h>

static int failures;
/* `section` is the specification's. */
#define EXPECT(section, c)                                                                                        \
    do {                                                                                                          \
        if (!(c)) failures++, printf("WRONG on node %u, line %d, section %s: %s\n", TPPI_self_address, __LINE__, section, #c); \
    } while (0)

/* The pages of the segment by number; blocks by page and number. */
static inline char *page(long n) { return TPPI_SEGMENT_BASE + n * TPPI_PAGE_SIZE; }
static inline char *block(long p, int n) { return page(p) + n * TPPI_TAG_BLK_SIZE; }

/* Accesses that the compiler neither moves nor merges. */
static inline int load(void *at) { return *(volatile int *)at; }
static inline void store(void *at, int v) { *(volatile int *)at = v; }

/* Handles what arrives until `c`: the loop has a poll. There may be fewer processors than nodes. */
#define WAIT_UNTIL(c)  \
    while (!(c))       \
        sched_yield()

static inline int done(void) {
    bz_barrier();
    if (TPPI_self_address == 0 && !failures) printf("ok\n");
    return failures != 0;
}
