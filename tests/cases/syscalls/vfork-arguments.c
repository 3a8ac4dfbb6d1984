//# uses: blizzard
//# flags: -O0 | -O2 -fno-tree-loop-distribute-patterns
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 1 2 3
/* A child of vfork makes system calls with every pointer argument in memory that another node has just written. The gate left the calls of such a
 * child alone, as it does those of other processes that a node starts. But this child uses the node's own memory: the kernel read stale bytes, and
 * `execve` of a path there failed with ENOENT. The calls are those of the gate's table (rt/SYSCALLS.md) that prepare a process, or that its files, signals,
 * terminals, sockets, limits and times need. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
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
    APART struct rlimit limit;
    APART struct timespec time;
    APART struct pollfd polled;
    APART struct stat status;
    APART int pipe[2];
    APART char name[16];
    APART char read[64];
    APART char link[64];
    APART struct flock lock;
    APART char new_path[2][128];
    APART stack_t stack, old_stack;
    APART struct itimerval timer, old_timer;
    APART struct timespec left, times[2];
    APART struct timeval limit_of_wait, of_day;
    APART struct timezone zone;
    APART fd_set readable, writable, exceptional;
    APART struct { void *mask; size_t bytes; } pair;
    APART struct sockaddr_un address, its_address;
    APART socklen_t length;
    APART struct msghdr message, got_message;
    APART struct iovec one[1];
    APART char control[64];
    APART int option, status_of_child, number;
    APART siginfo_t info;
    APART struct rusage usage;
    APART struct utsname host;
    APART struct sysinfo system;
    APART struct tms tms;
    APART gid_t groups[8];
    APART uid_t users[3];
    APART cpu_set_t processors, its_processors;
    APART struct sched_param scheduling, its_scheduling;
    APART struct winsize size, its_size;
    APART struct termios terminal;
    APART pid_t group;
    APART struct { uint64_t flags, mode, resolve; } how;
    APART struct statx statx;
    APART char entries[1024];
    APART posix_spawnattr_t attributes;
};

static unsigned node;
static struct given *g;
static int out;
static char alternate[1 << 16];

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
        for (int i = 0; i < 2; i++) snprintf(g->new_path[i], sizeof g->new_path[i], "%s/%s", scratch_folder, i ? "b" : "a");
        g->stack = (stack_t){.ss_sp = alternate, .ss_size = sizeof alternate};
        g->timer.it_value.tv_sec = 1000;
        g->times[0].tv_sec = 1000;
        g->times[1].tv_sec = 2000;
        g->limit_of_wait.tv_usec = 1;
        FD_SET(out, &g->writable);
        FD_SET(out, &g->readable);
        g->pair.mask = &g->set;
        g->pair.bytes = 8;
        g->address.sun_family = AF_UNIX;
        strcpy(g->address.sun_path, g->new_path[0]);
        g->length = sizeof g->its_address;
        g->one[0] = (struct iovec){g->read, sizeof g->read};
        g->message = (struct msghdr){.msg_iov = g->parts, .msg_iovlen = 2, .msg_control = g->control, .msg_controllen = CMSG_LEN(sizeof(int))};
        struct cmsghdr *header = (struct cmsghdr *)g->control;
        *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(header), &out, sizeof out);
        g->got_message = (struct msghdr){.msg_iov = g->one, .msg_iovlen = 1};
        g->option = 50000;
        g->number = 0;
        for (int i = 0; i < 8; i++) g->groups[i] = 7 + i;
        CPU_SET(sched_getcpu(), &g->processors);
        g->size.ws_row = 33;
        g->size.ws_col = 44;
        g->group = -5;
        g->how.flags = O_RDWR;
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

/* What the kernel refuses to whoever lacks the right for it, it has read before, or not at all. */
static int right(int done) { return done || errno == EPERM || errno == EACCES || errno == ENOSYS ? 42 : errno; }
static int folders_own(void) { return syscall(SYS_open, g->new_path[0], O_CREAT | O_RDWR, 0600); }

static int do_creat(void) { return syscall(SYS_creat, g->new_path[0], 0600) >= 0 && access(g->new_path[0], W_OK) == 0 && unlink(g->new_path[0]) == 0 ? 42 : errno; }
static int do_openat2(void) { return right(syscall(SYS_openat2, AT_FDCWD, g->file, &g->how, sizeof g->how) >= 0); }
static int do_mkdir(void) { return syscall(SYS_mkdir, g->new_path[0], 0700) == 0 && syscall(SYS_rmdir, g->new_path[0]) == 0 ? 42 : errno; }
static int do_mkdirat(void) { return mkdirat(AT_FDCWD, g->new_path[0], 0700) == 0 && unlinkat(AT_FDCWD, g->new_path[0], AT_REMOVEDIR) == 0 ? 42 : errno; }
static int do_rename(void) { return folders_own() >= 0 && syscall(SYS_rename, g->new_path[0], g->new_path[1]) == 0 && unlink(g->new_path[1]) == 0 ? 42 : errno; }
static int do_renameat(void) {
    return folders_own() >= 0 && syscall(SYS_renameat, AT_FDCWD, g->new_path[0], AT_FDCWD, g->new_path[1]) == 0 &&
                   syscall(SYS_renameat2, AT_FDCWD, g->new_path[1], AT_FDCWD, g->new_path[0], 0) == 0 && unlink(g->new_path[0]) == 0
               ? 42
               : errno;
}
static int do_link(void) {
    return folders_own() >= 0 && syscall(SYS_link, g->new_path[0], g->new_path[1]) == 0 && unlink(g->new_path[0]) == 0 &&
                   linkat(AT_FDCWD, g->new_path[1], AT_FDCWD, g->new_path[0], 0) == 0 && unlink(g->new_path[0]) == 0 && unlink(g->new_path[1]) == 0
               ? 42
               : errno;
}
static int do_symlink(void) {
    return syscall(SYS_symlink, g->directory, g->new_path[0]) == 0 && readlinkat(AT_FDCWD, g->new_path[0], g->read, sizeof g->read) == 4 &&
                   g->read[3] == 'r' && unlink(g->new_path[0]) == 0 && symlinkat(g->directory, AT_FDCWD, g->new_path[1]) == 0 && unlink(g->new_path[1]) == 0
               ? 42
               : errno;
}
static int do_chmod(void) {
    int file = folders_own();
    return file >= 0 && syscall(SYS_chmod, g->new_path[0], 0640) == 0 && fchmodat(AT_FDCWD, g->new_path[0], 0600, 0) == 0 &&
                   syscall(SYS_chown, g->new_path[0], getuid(), -1) == 0 && syscall(SYS_lchown, g->new_path[0], getuid(), -1) == 0 &&
                   fchownat(AT_FDCWD, g->new_path[0], getuid(), -1, 0) == 0 && unlink(g->new_path[0]) == 0
               ? 42
               : errno;
}
static int do_truncate(void) {
    int file = folders_own();
    return file >= 0 && truncate(g->new_path[0], 77) == 0 && syscall(SYS_fstat, file, &g->status) == 0 && g->status.st_size == 77 && unlink(g->new_path[0]) == 0 ? 42 : errno;
}
static int do_utimensat(void) {
    int file = folders_own();
    return file >= 0 && utimensat(AT_FDCWD, g->new_path[0], g->times, 0) == 0 && fstat(file, &g->status) == 0 && g->status.st_mtim.tv_sec == 2000 && unlink(g->new_path[0]) == 0 ? 42 : errno;
}
static int do_faccessat(void) { return faccessat(AT_FDCWD, g->file, R_OK, 0) == 0 && right(syscall(SYS_faccessat2, AT_FDCWD, g->file, R_OK, 0) == 0) == 42 ? 42 : errno; }
static int do_stats(void) {
    if (syscall(SYS_stat, g->directory, &g->status) || !S_ISDIR(g->status.st_mode)) return 1;
    if (syscall(SYS_lstat, g->file, &g->status) || !S_ISCHR(g->status.st_mode)) return 2;
    if (syscall(SYS_newfstatat, AT_FDCWD, g->directory, &g->status, 0) || !S_ISDIR(g->status.st_mode)) return 3;
    return right(statx(AT_FDCWD, g->directory, 0, STATX_TYPE, &g->statx) == 0 && S_ISDIR(g->statx.stx_mode));
}
static int do_getdents(void) {
    int folder = syscall(SYS_openat, AT_FDCWD, g->directory, O_RDONLY | O_DIRECTORY);
    long n = syscall(SYS_getdents64, folder, g->entries, sizeof g->entries);
    return n > 24 && *(unsigned short *)(g->entries + 16) >= 24 && *(unsigned short *)(g->entries + 16) < 300 ? 42 : errno;
}
static int do_chroot(void) { return right(chroot(g->directory) == 0 && access("/bin", R_OK) == 0); }
static int do_memfd(void) { return right(syscall(SYS_memfd_create, g->name, 0) >= 0); }
static int do_pread(void) {
    int file = folders_own();
    if (file < 0 || pwrite(file, g->text, 4, 3) != 4 || pread(file, g->read, 4, 3) != 4 || memcmp(g->read, "text", 4)) return 1;
    if (pwritev(file, g->parts, 2, 0) != 9 || preadv(file, g->one, 1, 0) != 9 || memcmp(g->read, "leftright", 9)) return 2;
    return unlink(g->new_path[0]) == 0 ? 42 : errno;
}
static int do_readv(void) {
    if (syscall(SYS_pipe2, g->pipe, O_CLOEXEC)) return errno;
    if (write(g->pipe[1], g->text, 4) != 4) return 1;
    return readv(g->pipe[0], g->one, 1) == 4 && memcmp(g->read, "text", 4) == 0 ? 42 : 2;
}
static int do_sendfile(void) {
    int file = folders_own(), ends[2];
    off_t *at = (off_t *)&g->times[0].tv_nsec;
    if (file < 0 || pipe(ends) || write(file, "0123456789", 10) != 10) return errno;
    /* The writer has left a zero there. */
    return sendfile(ends[1], file, at, 5) == 5 && *at == 5 && splice(file, at, ends[1], NULL, 3, 0) == 3 && *at == 8 && unlink(g->new_path[0]) == 0 ? 42 : errno;
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
    return unlink(g->new_path[0]) == 0 ? 42 : errno;
}
static int do_socketpair(void) {
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, g->pipe)) return errno;
    return sendto(g->pipe[0], g->text, 4, 0, NULL, 0) == 4 && recvfrom(g->pipe[1], g->read, 64, 0, (struct sockaddr *)&g->its_address, &g->length) == 4 &&
                   memcmp(g->read, "text", 4) == 0
               ? 42
               : errno;
}
static int do_sigaltstack(void) { return sigaltstack(&g->stack, &g->old_stack) == 0 && g->old_stack.ss_flags == SS_DISABLE && sigaltstack(NULL, &g->old_stack) == 0 && g->old_stack.ss_sp == alternate && (g->old_stack.ss_flags = SS_DISABLE, sigaltstack(&g->old_stack, NULL)) == 0 ? 42 : errno; }
static int do_sigpending(void) {
    sigset_t both = g->set;
    sigprocmask(SIG_BLOCK, &both, NULL);
    kill(getpid(), SIGUSR2);
    if (sigpending(&g->old_set) || !sigismember(&g->old_set, SIGUSR2)) return 1;
    if (sigtimedwait(&g->set, &g->info, &g->time) != SIGUSR2 || g->info.si_signo != SIGUSR2) return 2;
    g->info.si_code = SI_QUEUE;
    return syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR2, &g->info) == 0 ? 42 : errno;
}
static int do_itimer(void) { return setitimer(ITIMER_VIRTUAL, &g->timer, &g->old_timer) == 0 && g->old_timer.it_value.tv_sec == 0 && getitimer(ITIMER_VIRTUAL, &g->old_timer) == 0 && g->old_timer.it_value.tv_sec >= 999 ? 42 : errno; }
static int do_clocks(void) {
    if (syscall(SYS_clock_gettime, CLOCK_REALTIME, &g->left) || g->left.tv_sec < 1000000000) return 1;
    if (syscall(SYS_gettimeofday, &g->of_day, &g->zone) || g->of_day.tv_sec < 1000000000) return 2;
    if (syscall(SYS_clock_getres, CLOCK_MONOTONIC, &g->left) || g->left.tv_sec) return 3;
    if (syscall(SYS_time, &g->times[1]) < 1000000000 || g->times[1].tv_sec < 1000000000) return 4;
    if (clock_nanosleep(CLOCK_MONOTONIC, 0, &g->time, &g->left)) return 5;
    return (long)times(&g->tms) != -1 ? 42 : errno;
}
static int do_select(void) {
    if (select(out + 1, &g->readable, &g->writable, &g->exceptional, &g->limit_of_wait) != 2) return 1;
    if (!FD_ISSET(out, &g->readable) || !FD_ISSET(out, &g->writable)) return 2;
    return syscall(SYS_pselect6, out + 1, &g->readable, &g->writable, &g->exceptional, &g->time, &g->pair) == 2 ? 42 : errno;
}
static int do_ppoll(void) { return syscall(SYS_ppoll, &g->polled, 1, &g->time, &g->set, 8) == 1 && g->polled.revents == POLLOUT ? 42 : errno; }
static int do_waits(void) {
    /* There is no child; where there is one, its parent waits for it below. */
    if (syscall(SYS_wait4, -1, &g->status_of_child, WNOHANG, &g->usage) != -1 || errno != ECHILD) return 1;
    return syscall(SYS_waitid, P_ALL, 0, &g->info, WEXITED | WNOHANG, &g->usage) == -1 && errno == ECHILD ? 42 : 2;
}
static int do_usage(void) {
    if (getrusage(RUSAGE_SELF, &g->usage) || g->usage.ru_maxrss < 0 || g->usage.ru_maxrss > 1l << 40) return 1;
    if (uname(&g->host) || strcmp(g->host.machine, "x86_64")) return 2;
    if (sysinfo(&g->system) || g->system.mem_unit > 1 << 20) return 3;
    return syscall(SYS_getrandom, g->read, 16, 0) == 16 ? 42 : errno;
}
static int do_prlimit(void) { return syscall(SYS_prlimit64, 0, RLIMIT_CORE, &g->limit, NULL) == 0 && syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, &g->limit) == 0 && g->limit.rlim_cur == 0 ? 42 : errno; }
static int do_users(void) {
    if (syscall(SYS_getresuid, &g->users[0], &g->users[1], &g->users[2]) || g->users[2] != geteuid()) return 1;
    if (syscall(SYS_getresgid, &g->users[0], &g->users[1], &g->users[2]) || g->users[2] != getegid()) return 2;
    if (syscall(SYS_setgroups, 8, g->groups)) return right(0);
    g->groups[0] = 0;
    return syscall(SYS_getgroups, 8, g->groups) == 8 && g->groups[0] == 7 && g->groups[7] == 14 ? 42 : 3;
}
static int do_scheduling(void) {
    if (sched_setaffinity(0, sizeof g->processors, &g->processors)) return errno;
    if (sched_getaffinity(0, sizeof g->its_processors, &g->its_processors) || !CPU_EQUAL(&g->processors, &g->its_processors)) return 1;
    if (sched_setscheduler(0, SCHED_OTHER, &g->scheduling) || sched_setparam(0, &g->scheduling)) return errno;
    return sched_getparam(0, &g->its_scheduling) == 0 && g->its_scheduling.sched_priority == 0 && sched_rr_get_interval(0, &g->left) == 0 ? 42 : errno;
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
    CHILD(do_execve), CHILD(do_execveat), CHILD(do_fexecve), CHILD(do_open), CHILD(do_openat), CHILD(do_chdir), CHILD(do_getcwd), CHILD(do_stat),
    CHILD(do_access), CHILD(do_pipe), CHILD(do_writev), CHILD(do_sigprocmask), CHILD(do_sigaction),
    CHILD(do_setrlimit), CHILD(do_prctl), CHILD(do_nanosleep), CHILD(do_poll), CHILD(do_fcntl), CHILD(no_pointers),
    CHILD(do_creat), CHILD(do_openat2), CHILD(do_mkdir), CHILD(do_mkdirat), CHILD(do_rename), CHILD(do_renameat), CHILD(do_link), CHILD(do_symlink),
    CHILD(do_chmod), CHILD(do_truncate), CHILD(do_utimensat), CHILD(do_faccessat), CHILD(do_stats), CHILD(do_getdents), CHILD(do_chroot),
    CHILD(do_memfd), CHILD(do_pread), CHILD(do_readv), CHILD(do_sendfile), CHILD(do_sockets), CHILD(do_socketpair), CHILD(do_sigaltstack),
    CHILD(do_sigpending), CHILD(do_itimer), CHILD(do_clocks), CHILD(do_select), CHILD(do_ppoll), CHILD(do_waits), CHILD(do_usage), CHILD(do_prlimit),
    CHILD(do_users), CHILD(do_scheduling), CHILD(do_terminal),
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
