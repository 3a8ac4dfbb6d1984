/* A program of several nodes for runs on several hosts: what each node reads, writes and says, and how it ends. The first argument says which, the
 * second how often each node takes the lock before, the third how often nodes meet. */
#define _GNU_SOURCE
#include <blizzard.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    bz_lock_t *lock, *second;
    unsigned long word;
} volatile *shared;

/* All nodes add to one word, under a lock, and say what is there at the end. */
static void count(unsigned long rounds) {
    if (bz_node() == 0) {
        shared = bz_alloc(sizeof *shared);
        shared->lock = bz_lock_new();
        shared->second = bz_lock_new();
        bz_publish(0, (void *)shared);
    }
    shared = bz_lookup(0);
    bz_barrier();
    for (unsigned long i = 0; i < rounds; i++) {
        bz_lock(shared->lock);
        shared->word += 1;
        bz_unlock(shared->lock);
    }
    bz_barrier();
}

/* Node 1 has the second lock and wants the first one; node 0 has the first one. Others wait for them. */
__attribute__((noinline)) static void lock_crosswise(unsigned me) {
    if (me < 2) bz_lock(me == 0 ? shared->lock : shared->second);
    bz_barrier();
    if (me < 2) bz_lock(me == 0 ? shared->second : shared->lock);
    bz_barrier();
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    unsigned last = bz_nodes() - 1, me = bz_node();
    count(argc > 2 ? strtoul(argv[2], 0, 10) : 50);
    char name[64] = "";
    gethostname(name, sizeof name - 1);
    if (!strcmp(how, "count"))
        printf("node %u on %s: %lu\n", me, name, shared->word);
    if (!strcmp(how, "status") && me == last)
        exit(7);
    if (!strcmp(how, "leaves") && me == last)
        return 0;
    for (unsigned long i = 0; !strcmp(how, "meet") && argc > 3 && i < strtoul(argv[3], 0, 10); i++)
        bz_barrier();
    if (!strcmp(how, "killed") && me == last)
        raise(SIGKILL);
    if (!strcmp(how, "crashed") && me == last)
        raise(SIGSEGV);
    if (!strcmp(how, "input")) {
        unsigned long bytes = 0, sum = 0;
        for (int c; (c = getchar()) != EOF; bytes++)
            sum += (unsigned char)c;
        printf("node %u: %lu bytes, sum %lu\n", me, bytes, sum);
    }
    if (!strcmp(how, "output")) {
        for (int i = 0; i < 20000; i++)
            printf("node %u line %d of many, long enough to fill what a pipe and a host hold back\n", me, i);
    }
    /* The last node is away for good; the others wait for it. */
    if (!strcmp(how, "forever")) {
        fprintf(stderr, "node %u waits\n", me);
        if (me == last)
            for (;;)
                pause();
    }
    if (!strcmp(how, "locks"))
        lock_crosswise(me);
    /* The last node computes, and the others wait for it. */
    if (!strcmp(how, "computes") && me == last) {
        volatile unsigned long sum = 0;
        for (double end = seconds() + 3; seconds() < end;)
            sum += 1;
    }
    /* All nodes need each other all the time. */
    if (!strcmp(how, "busy")) {
        fprintf(stderr, "node %u waits\n", me);
        for (;;) {
            bz_lock(shared->lock);
            shared->word += 1;
            bz_unlock(shared->lock);
        }
    }
    bz_barrier();
    return 0;
}
