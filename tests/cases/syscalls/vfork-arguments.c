//# uses: blizzard
//# flags: -O0 | -O2 -fno-tree-loop-distribute-patterns
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 1 2 3
/* A child of vfork makes system calls with every pointer argument in memory that another node has just written. The gate left the calls of such a
 * child alone, as it does those of other processes that a node starts. But this child uses the node's own memory: the kernel read stale bytes, and
 * `execve` of a path there failed with ENOENT. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Each member in blocks of its own, so that no call finds them by the way. */
#define APART __attribute__((aligned(4096)))
struct given {
    APART char path[64];
    APART char *argv[8];
    APART char words[6][128];
    APART char *envp[4];
    APART char variables[2][128];
    APART char directory[64];
    APART char file[64];
    APART char text[64];
    APART struct iovec parts[2];
    APART char halves[2][64];
    APART sigset_t set, old_set;
    APART struct sigaction action, old_action;
    APART struct rlimit limit;
    APART struct timespec time;
    APART struct pollfd polled;
    APART struct stat status;
    APART int pipe[2];
    APART char name[16];
    APART char read[64];
    APART char link[64];
    APART struct flock lock;
};

static unsigned node;
static struct given *g;
static int out;

/* The next node fills everything in; the caller then owns nothing of it. */
static void fill(unsigned writer) {
    bz_barrier();
    if (node == writer) {
        memset(g, 0, sizeof *g);
        strcpy(g->path, "/bin/sh");
        strcpy(g->words[0], "sh");
        strcpy(g->words[1], "-c");
        strcpy(g->words[2], "test \"$A\" = one && test \"$B\" = two && exit $(($1 + 40))");
        strcpy(g->words[3], "name");
        strcpy(g->words[4], "2");
        for (int i = 0; i < 5; i++) g->argv[i] = g->words[i];
        strcpy(g->variables[0], "A=one");
        strcpy(g->variables[1], "B=two");
        for (int i = 0; i < 2; i++) g->envp[i] = g->variables[i];
        strcpy(g->directory, "/usr");
        strcpy(g->file, "/dev/null");
        strcpy(g->text, "text");
        strcpy(g->name, "renamed");
        strcpy(g->link, "/proc/self/cwd");
        for (int i = 0; i < 2; i++) {
            strcpy(g->halves[i], i ? "right" : "left");
            g->parts[i].iov_base = g->halves[i];
            g->parts[i].iov_len = strlen(g->halves[i]);
        }
        sigemptyset(&g->set);
        sigaddset(&g->set, SIGUSR2);
        g->action.sa_handler = SIG_IGN;
        g->limit.rlim_cur = g->limit.rlim_max = 0;
        g->time.tv_nsec = 1000;
        g->polled.fd = out;
        g->polled.events = POLLOUT;
        g->lock.l_type = F_RDLCK;
    }
    bz_barrier();
}

/* What a child of vfork does; 42 is right. */
typedef int child_t(void);

static int do_execve(void) { execve(g->path, g->argv, g->envp); return errno; }
static int do_execveat(void) { syscall(SYS_execveat, AT_FDCWD, g->path, g->argv, g->envp, 0); return errno; }
static int do_fexecve(void) {
    int file = open(g->path, O_RDONLY | O_CLOEXEC);
    fexecve(file, g->argv, g->envp);
    return errno;
}
static int do_open(void) { return open(g->file, O_RDWR) >= 0 ? 42 : errno; }
static int do_openat(void) { return openat(AT_FDCWD, g->file, O_RDWR) >= 0 ? 42 : errno; }
static int do_chdir(void) {
    if (chdir(g->directory)) return errno;
    ssize_t n = readlink(g->link, g->read, sizeof g->read);
    return n == 4 && memcmp(g->read, "/usr", 4) == 0 ? 42 : 1;
}
static int do_getcwd(void) { return chdir("/usr") == 0 && getcwd(g->read, sizeof g->read) && g->read[3] == 'r' ? 42 : errno; }
static int do_stat(void) { return stat(g->directory, &g->status) == 0 && S_ISDIR(g->status.st_mode) ? 42 : errno; }
static int do_access(void) { return access(g->file, R_OK) == 0 ? 42 : errno; }
static int do_pipe(void) {
    if (pipe(g->pipe)) return errno;
    if (write(g->pipe[1], g->text, 4) != 4) return 1;
    if (read(g->pipe[0], g->read, sizeof g->read) != 4) return 2;
    return memcmp(g->read, "text", 4) == 0 ? 42 : 3;
}
static int do_writev(void) {
    int ends[2];
    char got[16];
    if (pipe(ends)) return errno;
    if (writev(ends[1], g->parts, 2) != 9) return 1;
    return read(ends[0], got, sizeof got) == 9 && memcmp(got, "leftright", 9) == 0 ? 42 : 3;
}
static int do_sigprocmask(void) {
    if (sigprocmask(SIG_SETMASK, &g->set, &g->old_set)) return errno;
    if (sigprocmask(SIG_SETMASK, NULL, &g->old_set)) return errno;
    return sigismember(&g->old_set, SIGUSR2) == 1 ? 42 : 1;
}
static int do_sigaction(void) {
    if (sigaction(SIGUSR1, &g->action, &g->old_action)) return errno;
    if (g->old_action.sa_handler != SIG_DFL) return 1;
    return kill(getpid(), SIGUSR1) == 0 ? 42 : errno;
}
static int do_setrlimit(void) {
    if (setrlimit(RLIMIT_CORE, &g->limit)) return errno;
    g->limit.rlim_cur = 9;
    return getrlimit(RLIMIT_CORE, &g->limit) == 0 && g->limit.rlim_cur == 0 ? 42 : 1;
}
static int do_prctl(void) {
    char got[16];
    return prctl(PR_SET_NAME, g->name) == 0 && prctl(PR_GET_NAME, got) == 0 && strcmp(got, "renamed") == 0 ? 42 : 1;
}
static int do_nanosleep(void) { return nanosleep(&g->time, &g->time) == 0 ? 42 : errno; }
static int do_poll(void) { return poll(&g->polled, 1, 0) == 1 && g->polled.revents == POLLOUT ? 42 : 1; }
static int do_fcntl(void) { return fcntl(out, F_GETLK, &g->lock) == 0 && g->lock.l_type == F_UNLCK ? 42 : errno; }
static int no_pointers(void) {
    int copy = dup(out);
    return dup2(copy, copy + 1) == copy + 1 && close(copy) == 0 && setsid() > 0 && getpgid(0) == getpid() &&
                   fcntl(out, F_SETFD, FD_CLOEXEC) == 0
               ? 42
               : errno;
}

static const struct { const char *name; child_t *run; } CHILDREN[] = {
#define CHILD(name) {#name, name}
    CHILD(do_execve), CHILD(do_execveat), CHILD(do_fexecve), CHILD(do_open), CHILD(do_openat), CHILD(do_chdir), CHILD(do_getcwd), CHILD(do_stat),
    CHILD(do_access), CHILD(do_pipe), CHILD(do_writev), CHILD(do_sigprocmask), CHILD(do_sigaction),
    CHILD(do_setrlimit), CHILD(do_prctl), CHILD(do_nanosleep), CHILD(do_poll), CHILD(do_fcntl), CHILD(no_pointers),
};

static int ended(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

__attribute__((noinline)) static int in_child(child_t *run) {
    pid_t pid = vfork();
    if (pid == 0) _exit(run());
    return ended(pid);
}

int main(void) {
    unsigned nodes = bz_nodes();
    node = bz_node();
    if (node == 0) bz_publish(0, bz_alloc(sizeof *g + 4096));
    g = (struct given *)(((uintptr_t)bz_lookup(0) + 4095) & ~(uintptr_t)4095);
    out = open("/dev/null", O_RDWR);
    uint64_t wrong = 0;
    for (unsigned me = 0; me < nodes; me++) {
        for (unsigned i = 0; i < sizeof CHILDREN / sizeof *CHILDREN; i++) {
            fill((me + 1) % nodes);
            int status = node == me ? in_child(CHILDREN[i].run) : 42;
            if (status != 42) {
                fprintf(stderr, "node %u, %s: %d\n", node, CHILDREN[i].name, status);
                wrong++;
            }
        }
        fill((me + 1) % nodes);
        pid_t pid = -1;
        if (node == me && (posix_spawn(&pid, g->path, NULL, NULL, g->argv, g->envp) || ended(pid) != 42)) wrong++;
        fill((me + 1) % nodes);
        if (node == me && (posix_spawnp(&pid, g->path, NULL, NULL, g->argv, g->envp) || ended(pid) != 42)) wrong++;
        fill((me + 1) % nodes);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        if (node == me &&
            (posix_spawn_file_actions_addopen(&actions, 0, g->file, O_RDONLY, 0) ||
             posix_spawn(&pid, g->path, &actions, NULL, g->argv, g->envp) || ended(pid) != 42))
            wrong++;
        posix_spawn_file_actions_destroy(&actions);
        bz_barrier();
        if (node == (me + 1) % nodes) strcpy(g->words[5], "echo A line; exit 42");
        bz_barrier();
        if (node == me) {
            int status = system(g->words[5] + 13);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 42) wrong++;
        }
        bz_barrier();
        if (node == (me + 1) % nodes) strcpy(g->words[5], "echo A line");
        bz_barrier();
        if (node == me) {
            char line[32] = "";
            FILE *from = popen(g->words[5], "r");
            if (!from || !fgets(line, sizeof line, from) || strcmp(line, "A line\n") || pclose(from)) wrong++;
        }
    }
    wrong = bz_reduce_sum_u64(wrong);
    if (node == 0) printf("%llu wrong\n", (unsigned long long)wrong);
    return wrong != 0;
}
