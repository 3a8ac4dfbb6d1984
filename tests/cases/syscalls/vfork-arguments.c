//# uses: blizzard
//# flags: -O0 | -O2 -fno-tree-loop-distribute-patterns
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 1 2 3
/* A child of vfork makes system calls with every pointer argument in memory that another node has just written. The gate left the calls of such a
 * child alone, as it does those of other processes that a node starts. But this child uses the node's own memory: the kernel read stale bytes, and
 * `execve` of a path there failed with ENOENT. Here are new programs, and sequences of calls of which one needs what another has done. Single calls are in
 * vfork-calls.c. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
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
    APART struct timespec time;
    APART int pipe[2];
    APART char read[64];
    APART char link[64];
    APART char new_path[128];
    APART struct sockaddr_un address, its_address;
    APART socklen_t length;
    APART struct msghdr message, got_message;
    APART struct iovec one[1];
    APART char control[64];
    APART int option, number;
    APART siginfo_t info;
    APART struct sched_param scheduling;
    APART struct winsize size, its_size;
    APART struct termios terminal;
    APART pid_t group;
    APART posix_spawnattr_t attributes;
};

static unsigned node;
static struct given *g;
static int out;

static char scratch_folder[64];

/* The next node fills everything in; node `me` then owns nothing of it, and what it remembers is something else. */
static void fill(unsigned me, unsigned writer) {
    bz_barrier();
    if (node == me) memset(g, 0x5a, sizeof *g);
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
        strcpy(g->link, "/proc/self/cwd");
        for (int i = 0; i < 2; i++) {
            strcpy(g->halves[i], i ? "right" : "left");
            g->parts[i].iov_base = g->halves[i];
            g->parts[i].iov_len = strlen(g->halves[i]);
        }
        sigemptyset(&g->set);
        sigaddset(&g->set, SIGUSR2);
        g->action.sa_handler = SIG_IGN;
        g->time.tv_nsec = 1000;
        snprintf(g->new_path, sizeof g->new_path, "%s/a", scratch_folder);
        g->address.sun_family = AF_UNIX;
        strcpy(g->address.sun_path, g->new_path);
        g->length = sizeof g->its_address;
        g->one[0] = (struct iovec){g->read, sizeof g->read};
        g->message = (struct msghdr){.msg_iov = g->parts, .msg_iovlen = 2, .msg_control = g->control, .msg_controllen = CMSG_LEN(sizeof(int))};
        struct cmsghdr *header = (struct cmsghdr *)g->control;
        *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(header), &out, sizeof out);
        g->got_message = (struct msghdr){.msg_iov = g->one, .msg_iovlen = 1};
        g->option = 50000;
        g->number = 0;
        g->size.ws_row = 33;
        g->size.ws_col = 44;
        g->group = -5;
        posix_spawnattr_init(&g->attributes);
        posix_spawnattr_setsigmask(&g->attributes, &g->set);
        posix_spawnattr_setsigdefault(&g->attributes, &g->set);
        posix_spawnattr_setschedparam(&g->attributes, &g->scheduling);
        posix_spawnattr_setflags(&g->attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSCHEDULER | POSIX_SPAWN_SETPGROUP);
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
static int do_chdir(void) {
    if (chdir(g->directory)) return errno;
    ssize_t n = readlink(g->link, g->read, sizeof g->read);
    return n == 4 && memcmp(g->read, "/usr", 4) == 0 ? 42 : 1;
}
static int do_pipe(void) {
    if (pipe(g->pipe)) return errno;
    if (write(g->pipe[1], g->text, 4) != 4) return 1;
    if (read(g->pipe[0], g->read, sizeof g->read) != 4) return 2;
    return memcmp(g->read, "text", 4) == 0 ? 42 : 3;
}
static int do_sigaction(void) {
    if (sigaction(SIGUSR1, &g->action, &g->old_action)) return errno;
    if (g->old_action.sa_handler != SIG_DFL) return 1;
    return kill(getpid(), SIGUSR1) == 0 ? 42 : errno;
}
static int no_pointers(void) {
    int copy = dup(out);
    return dup2(copy, copy + 1) == copy + 1 && close(copy) == 0 && setsid() > 0 && getpgid(0) == getpid() &&
                   fcntl(out, F_SETFD, FD_CLOEXEC) == 0
               ? 42
               : errno;
}

static int do_sockets(void) {
    int listens = socket(AF_UNIX, SOCK_STREAM, 0), calls = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listens, (struct sockaddr *)&g->address, sizeof g->address) || listen(listens, 1)) return errno;
    if (connect(calls, (struct sockaddr *)&g->address, sizeof g->address)) return errno;
    int takes = accept(listens, (struct sockaddr *)&g->its_address, &g->length);
    if (takes < 0 || g->length != 2) return 1;
    g->length = sizeof g->its_address;
    if (getsockname(listens, (struct sockaddr *)&g->its_address, &g->length) || strcmp(g->its_address.sun_path, g->address.sun_path)) return 2;
    if (getpeername(calls, (struct sockaddr *)&g->its_address, &g->length) || g->its_address.sun_path[0] != '/') return 3;
    if (setsockopt(calls, SOL_SOCKET, SO_SNDBUF, &g->option, sizeof g->option)) return 4;
    g->length = sizeof g->option;
    if (getsockopt(calls, SOL_SOCKET, SO_SNDBUF, &g->option, &g->length) || g->option != 100000) return 5;
    if (sendmsg(calls, &g->message, 0) != 9) return 6;
    if (recvmsg(takes, &g->got_message, 0) != 9 || memcmp(g->read, "leftright", 9)) return 7;
    if (send(calls, g->text, 4, 0) != 4 || recv(takes, g->read, sizeof g->read, 0) != 4 || memcmp(g->read, "text", 4)) return 8;
    return unlink(g->new_path) == 0 ? 42 : errno;
}
static int do_sigpending(void) {
    sigset_t both = g->set;
    sigprocmask(SIG_BLOCK, &both, NULL);
    kill(getpid(), SIGUSR2);
    if (sigpending(&g->old_set) || !sigismember(&g->old_set, SIGUSR2)) return 1;
    if (sigtimedwait(&g->set, &g->info, &g->time) != SIGUSR2 || g->info.si_signo != SIGUSR2) return 2;
    g->info.si_code = SI_QUEUE;
    return syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR2, &g->info) == 0 ? 42 : errno;
}
static int do_terminal(void) {
    int controls = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    if (controls < 0) return 42;
    if (ioctl(controls, TIOCSPTLCK, &g->number) || ioctl(controls, TIOCGPTN, &g->option) || g->option < 0 || g->option > 1 << 20) return 1;
    if (ioctl(controls, TIOCSWINSZ, &g->size) || ioctl(controls, TIOCGWINSZ, &g->its_size) || g->its_size.ws_col != 44) return 2;
    if (ioctl(controls, TCGETS, &g->terminal) || ioctl(controls, TCSETS, &g->terminal) || ioctl(controls, FIONREAD, &g->number)) return 3;
    char name[32];
    int n = g->option, length = 9;
    memcpy(name, "/dev/pts/", 9);
    for (int digit = 1000000; digit; digit /= 10)
        if (n >= digit || digit == 1) name[length++] = '0' + n / digit % 10;
    name[length] = 0;
    if (setsid() < 0) return 4;
    int terminal = open(name, O_RDWR | O_NOCTTY);
    if (terminal < 0) return 42;
    if (ioctl(terminal, TIOCSCTTY, 0)) return 5;
    if (ioctl(terminal, TIOCGPGRP, &g->option) || g->option != getpid()) return 6;
    /* A group that cannot be: the kernel has read what the other node has written. */
    return ioctl(terminal, TIOCSPGRP, &g->group) == -1 && errno == EINVAL ? 42 : 7;
}

static const struct { const char *name; child_t *run; } CHILDREN[] = {
#define CHILD(name) {#name, name}
    CHILD(do_execve), CHILD(do_execveat), CHILD(do_fexecve), CHILD(do_chdir), CHILD(do_pipe), CHILD(do_sigaction), CHILD(no_pointers), CHILD(do_sockets),
    CHILD(do_sigpending), CHILD(do_terminal),
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
    strcpy(scratch_folder, "/tmp/blizzard-vfork-XXXXXX");
    if (node == 0) {
        if (!mkdtemp(scratch_folder)) return 2;
        char *shared = bz_alloc(64);
        strcpy(shared, scratch_folder);
        bz_publish(1, shared);
    }
    strcpy(scratch_folder, bz_lookup(1));
    uint64_t wrong = 0;
    for (unsigned me = 0; me < nodes; me++) {
        for (unsigned i = 0; i < sizeof CHILDREN / sizeof *CHILDREN; i++) {
            fill(me, (me + 1) % nodes);
            int status = node == me ? in_child(CHILDREN[i].run) : 42;
            if (status != 42) {
                fprintf(stderr, "node %u, %s: %d\n", node, CHILDREN[i].name, status);
                wrong++;
            }
        }
        fill(me, (me + 1) % nodes);
        pid_t pid = -1;
        if (node == me && (posix_spawn(&pid, g->path, NULL, NULL, g->argv, g->envp) || ended(pid) != 42)) wrong++;
        fill(me, (me + 1) % nodes);
        if (node == me && (posix_spawnp(&pid, g->path, NULL, NULL, g->argv, g->envp) || ended(pid) != 42)) wrong++;
        fill(me, (me + 1) % nodes);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        if (node == me &&
            (posix_spawn_file_actions_addopen(&actions, 0, g->file, O_RDONLY, 0) ||
             posix_spawn_file_actions_addchdir_np(&actions, g->directory) || posix_spawn_file_actions_adddup2(&actions, out, 9) ||
             posix_spawn(&pid, g->path, &actions, &g->attributes, g->argv, g->envp) || ended(pid) != 42))
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
    if (node == 0) rmdir(scratch_folder);
    if (node == 0) printf("%llu wrong\n", (unsigned long long)wrong);
    return wrong != 0;
}
