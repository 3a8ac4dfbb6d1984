//# uses: blizzard
//# flags: -O0 | -O2
//# link: -pie | -no-pie | -static
//# compilers: gcc
//# nodes: 2
/* A program that limits its own data and its own address space. The kernel counts the runtime's terabytes towards both, and every later allocation failed
 * (found with fossil, which exits without a message). What it sees, what it may set, what it can allocate, and what other programs start with stays as it was. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const rlim_t G = 1ul << 30;

static void show(const char *name, int kind) {
    struct rlimit l;
    if (bz_node() != 0) return;
    printf("%s: %d", name, getrlimit(kind, &l));
    printf(" %lld %lld\n", (long long)l.rlim_cur, (long long)l.rlim_max);
}
static int fits(size_t bytes) {
    void *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p != MAP_FAILED && munmap(p, bytes) == 0;
}
static void say(const char *what, int value) {
    if (bz_node() == 0) printf("%s: %d\n", what, value);
}
/* The soft limits of another program, as it sees them. */
static void other(void) {
    FILE *f = popen("ulimit -d; ulimit -v", "r");
    char line[64];
    while (fgets(line, sizeof line, f))
        if (bz_node() == 0) printf("another has %s", line);
    say("another", pclose(f));
}

int main(int argc, char **argv) {
    if (argc > 1) {
        struct rlimit l;
        int failed = getrlimit(RLIMIT_DATA, &l);
        printf("executed: %d %lld %d %d\n", failed, (long long)l.rlim_cur, fits(G / 8), fits(4 * G));
        return 0;
    }
    show("data", RLIMIT_DATA);
    say("set", setrlimit(RLIMIT_DATA, &(struct rlimit){2 * G, 3 * G}));
    show("data", RLIMIT_DATA);
    say("little", fits(G / 8));
    say("much", fits(2 * G + G / 4));
    say("brk", sbrk(1 << 20) != (void *)-1);
    struct rlimit before;
    say("set", prlimit(0, RLIMIT_AS, &(struct rlimit){8 * G, 9 * G}, &before));
    say("before", before.rlim_cur == RLIM_INFINITY);
    say("set", prlimit(getpid(), RLIMIT_AS, &(struct rlimit){7 * G, 9 * G}, &before));
    say("before", before.rlim_cur == 8 * G && before.rlim_max == 9 * G);
    show("address space", RLIMIT_AS);
    say("reserved", mmap(0, G, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    say("too much", mmap(0, 8 * G, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    say("soft above hard", setrlimit(RLIMIT_AS, &(struct rlimit){10 * G, 9 * G}) == -1 && errno == EINVAL);
    say("no structure", syscall(SYS_setrlimit, RLIMIT_AS, 8) == -1 && errno == EFAULT);
    say("no room", syscall(SYS_getrlimit, RLIMIT_DATA, 8) == -1 && errno == EFAULT);
    say("nothing asked", syscall(SYS_prlimit64, 0, RLIMIT_DATA, 0, 0));
    /* Memory that the runtime hands out, and tables that it makes when they are first needed. */
    char *shared = bz_alloc(1 << 20);
    if (shared) memset(shared, bz_node() + 1, 1 << 20);
    say("shared", shared && shared[12345] == (char)(bz_node() + 1));
    other();
    /* Of three ways to execute, each fails first, as a search through PATH does; what follows must find the limits in force again. */
    pid_t child = vfork();
    if (child == 0) {
        execl("/nonexistent/sh", "sh", (char *)0);
        execl("/bin/sh", "sh", "-c", "test $(ulimit -d) = 2097152 && test $(ulimit -v) = 7340032", (char *)0);
        _exit(9);
    }
    int status = -1;
    waitpid(child, &status, 0);
    say("vfork", status);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        execl("/nonexistent/self", "self", (char *)0);
        int again = fits(G / 8) && !fits(2 * G + G / 4);
        if (bz_node() == 0) {
            printf("in force: %d\n", again);
            fflush(stdout);
            execl("/proc/self/exe", argv[0], "executed", (char *)0);
        }
        _exit(again ? 0 : 9);
    }
    waitpid(child, &status, 0);
    say("fork", status);
    execl("/nonexistent/self", "self", (char *)0);
    say("little", fits(G / 8));
    say("much", fits(2 * G + G / 4));
    show("data", RLIMIT_DATA);
    show("address space", RLIMIT_AS);
    return 0;
}
