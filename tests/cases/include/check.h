/* What the nodes of a case check.
 *
 * Use: set `node` to this node's number. CHECK says on standard error what does not hold, and counts it in `failures`. `return failed()`
 * ends main on all nodes: node 0 prints how many failures there were in all.
 */
#ifndef CHECK_H
#define CHECK_H
#include <blizzard.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

static unsigned node, failures;

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            failures++;                                                                             \
            fprintf(stderr, "node %u line %d: %s (errno %d)\n", node, __LINE__, #condition, errno); \
        }                                                                                           \
    } while (0)

static int failed(void) {
    const uint64_t all = bz_reduce_sum_u64(failures);
    if (node == 0) printf("failures %lu\n", (unsigned long)all);
    return all != 0;
}
#endif
