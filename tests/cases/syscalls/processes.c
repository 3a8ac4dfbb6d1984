//# uses: blizzard
//# flags: -O0 | -O2 -fno-tree-loop-distribute-patterns
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 2 3
/* Processes that a node starts: fork, vfork, posix_spawn, system, popen. A child has the node's private memory, takes no part in the run,
 * and the node goes on sharing memory while it waits. */
#define _GNU_SOURCE
#include "check.h"
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int ended(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Work on private memory with loops, so that a child meets checks and polls. */
static unsigned work(unsigned *heap, unsigned n) {
    unsigned sum = 0;
    for (unsigned i = 0; i < n; i++) heap[i] = heap[i] * 3 + i;
    for (unsigned i = 0; i < n; i++) sum += heap[i];
    return sum;
}

int main(void) {
    node = bz_node();
    volatile long *shared;
    if (node == 0) {
        shared = bz_alloc(1000 * sizeof(long));
        bz_publish(0, (void *)shared);
    } else {
        shared = bz_lookup(0);
    }
    unsigned *heap = malloc(10000 * sizeof *heap);
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 10000; i++) heap[i] = i + round;
        unsigned *copy = malloc(10000 * sizeof *copy);
        for (unsigned i = 0; i < 10000; i++) copy[i] = heap[i];
        unsigned expected = work(copy, 10000) & 0x7f;
        free(copy);
        bz_barrier();
        pid_t child = fork();
        if (child == 0) _exit(work(heap, 10000) & 0x7f);
        /* Contended stores while the child runs: peers ring this node's doorbell, not the child's. */
        for (int i = 0; i < 2000; i++) shared[(i * 7) % 64] += 1;
        CHECK(ended(child) == (int)expected);
        bz_barrier();
        /* The child's work is not the parent's. */
        CHECK(heap[1] == 1u + round);
        child = vfork();
        if (child == 0) {
            execl("/bin/sh", "sh", "-c", "exit 6", (char *)0);
            _exit(127);
        }
        CHECK(ended(child) == 6);
        child = vfork();
        if (child == 0) {
            execl("/no/such/program", "x", (char *)0);
            _exit(9);
        }
        CHECK(ended(child) == 9);
        char *argv[] = {"sh", "-c", "exit 4", 0};
        CHECK(posix_spawn(&child, "/bin/sh", 0, 0, argv, environ) == 0 && ended(child) == 4);
        CHECK(WEXITSTATUS(system("exit 5")) == 5);
        char line[32] = "";
        FILE *f = popen("echo popen $((40 + 2))", "r");
        CHECK(f && fgets(line, sizeof line, f) && strcmp(line, "popen 42\n") == 0);
        CHECK(f && pclose(f) == 0);
        /* A grandchild. */
        child = fork();
        if (child == 0) {
            pid_t inner = fork();
            if (inner == 0) _exit(11);
            _exit(ended(inner) + 1);
        }
        CHECK(ended(child) == 12);
    }
    bz_barrier();
    return failed();
}
