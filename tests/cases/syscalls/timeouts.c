//# flags: -O2
//# link: -pie | -static
//# compilers: gcc
//# nodes: 2 3
//# checks: all
/* A timeout goes on however often peers call the node meanwhile: node 0 sleeps while the others ask it for one block after the other, many times in
 * each of its waits. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 40000, BLOCK_WORDS = 64 / 8, WAIT_MS = 200, EACH_US = 5000 };
static uint64_t *blocks, *over;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void waits(int kind) {
    struct timespec time = {.tv_nsec = WAIT_MS * 1000000L};
    struct epoll_event event;
    if (kind == 0) nanosleep(&time, 0);
    if (kind == 1) clock_nanosleep(CLOCK_MONOTONIC, 0, &time, 0);
    if (kind == 2) poll(0, 0, WAIT_MS);
    if (kind == 3) {
        const int set = epoll_create1(0);
        epoll_wait(set, &event, 1, WAIT_MS);
        close(set);
    }
}

int main(void) {
    const unsigned node = bz_node();
    if (node == 0) {
        bz_publish(0, bz_alloc_on(0, BLOCKS * 64));
        bz_publish(1, bz_alloc(64));
    }
    blocks = bz_lookup(0);
    over = bz_lookup(1);
    /* All of them are node 0's. */
    if (node == 0)
        for (int i = 0; i < BLOCKS; i++) blocks[i * BLOCK_WORDS] = i;
    bz_barrier();
    uint64_t wrong = 0, asked = 0;
    if (node == 0) {
        for (int kind = 0; kind < 4; kind++) {
            /* A machine that stands still makes one wait long, not all. */
            int64_t shortest = 1 << 30;
            for (int again = 0; again < 3; again++) {
                const int64_t begin = now_ms();
                waits(kind);
                const int64_t took = now_ms() - begin;
                if (took < WAIT_MS) wrong++;
                if (took < shortest) shortest = took;
            }
            if (shortest > WAIT_MS + WAIT_MS / 2) {
                wrong++;
                fprintf(stderr, "kind %d took %ld ms\n", kind, (long)shortest);
            }
        }
        __atomic_store_n(over, 1, __ATOMIC_SEQ_CST);
    } else {
        for (int i = node - 1; i < BLOCKS && !__atomic_load_n(over, __ATOMIC_SEQ_CST); i += bz_nodes() - 1) {
            wrong += __atomic_fetch_add(&blocks[i * BLOCK_WORDS], 1, __ATOMIC_SEQ_CST) != (uint64_t)i;
            asked++;
            usleep(EACH_US);
        }
    }
    asked = bz_reduce_sum_u64(asked);
    wrong = bz_reduce_sum_u64(wrong + (bz_nodes() > 1 && asked < 100));
    if (node == 0) printf("wrong %lu\n", (unsigned long)wrong);
    return wrong != 0;
}
