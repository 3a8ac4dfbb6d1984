//# uses: blizzard
//# flags: -O2
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 2 3
//# timeout: 120
/* Every call of the gate's table that has a pointer (calls.inc), made by two children of vfork: one with all that it points to in private memory, one with
 * the same in shared memory that another node has just written. Result, errno, what the files then are and every byte must be the same, and another node
 * must see the same bytes. Sequences of calls are in vfork-arguments.c. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Each member in a block of its own, so that no call finds it by the way. */
#define APART __attribute__((aligned(64)))
struct given {
    APART char path[96];
    APART char fresh[96];
    APART char folder[96];
    APART char link[96];
    APART char bad[64];
    APART char directory[64];
    APART char proc[64];
    APART char text[64];
    APART char name[64];
    APART char attribute[64];
    APART char user[64];
    APART char mailbox[64];
    APART char file_system[64];
    APART char key[64];
    APART char value[64];
    APART char buffer[128];
    APART char out[512];
    APART char out2[256];
    APART char out3[64];
    APART char halves[2][64];
    APART struct iovec parts[2];
    APART struct iovec one[1];
    APART struct iovec remote[1];
    APART int number, apart_from_number;
    APART int zero;
    APART int option;
    APART unsigned length;
    APART unsigned allow;
    APART unsigned long set;
    APART struct { unsigned long handler, flags, restorer, mask; } action;
    APART struct { void *mask; unsigned long bytes; } pair;
    APART stack_t stack;
    APART struct pollfd polled;
    APART fd_set readable;
    APART fd_set writable;
    APART fd_set exceptional;
    APART struct timespec now;
    APART struct timespec soon;
    APART struct timespec no_time;
    APART struct timespec timer[2];
    APART long seconds[4];
    APART long offset;
    APART long offset2;
    APART struct sockaddr_un address;
    APART struct mmsghdr message;
    APART struct mmsghdr got_message;
    APART struct sembuf operation;
    APART struct { long type; char text[8]; } sent;
    APART struct flock lock;
    APART gid_t groups[8];
    APART struct { unsigned version; int pid; } capabilities;
    APART unsigned sets[6];
    APART siginfo_t info;
    APART char timex[208];
    APART struct { unsigned long soft, hard; } limit;
    APART char processors[128];
    APART unsigned long words[8];
    APART struct sigevent event;
    APART struct epoll_event awaited;
    APART unsigned long nodes;
    APART void *pages[1];
    APART long mail[8];
    APART struct { unsigned type, size; unsigned long config, rest[6]; } performance;
    APART struct { unsigned bytes; int type; char rest[128]; } handle;
    APART struct { unsigned bytes; int type; char rest[128]; } full_handle;
    APART struct { unsigned size, policy; unsigned long rest[6]; } scheduling;
    APART unsigned long how[3];
    APART unsigned long mounting[4];
    APART unsigned long ruleset;
    APART struct { unsigned long allowed; int parent; } __attribute__((packed)) rule;
    APART struct { unsigned long value, word; unsigned flags, reserved; } waiters[2];
    APART unsigned long range[2];
    APART struct { unsigned size, spare; unsigned long id, parameter; } mounted;
    APART struct { unsigned size, spare; unsigned long id, parameter; } all_mounts;
    APART struct { void *value; unsigned size, flags; } attribute_in;
    APART struct { void *value; unsigned size, flags; } attribute_out;
    APART unsigned long file_attributes[3];
};

enum { QUEUED = 40 };
static unsigned node;
static int null, file, word, word2;
static char *page;
static char alternate[1 << 14];
/* What is in the folder: private copies of the names. */
static char scratch[64], path[96], fresh[96], other[96], folder[96], name_of_link[96];
static const char *mailbox_name;

static void fill(struct given *g) {
    memset(g, 0, sizeof *g);
    strcpy(g->path, path);
    strcpy(g->fresh, fresh);
    strcpy(g->folder, folder);
    strcpy(g->link, name_of_link);
    strcpy(g->bad, "/dev/null/x");
    strcpy(g->directory, "/usr");
    strcpy(g->proc, "/proc");
    strcpy(g->text, "text");
    strcpy(g->name, "renamed");
    strcpy(g->attribute, "user.given");
    strcpy(g->user, "user");
    strcpy(g->mailbox, mailbox_name);
    strcpy(g->file_system, "tmpfs");
    strcpy(g->key, "size");
    strcpy(g->value, "64k");
    /* Zeros of the kernel are seen, too. */
    memset(g->buffer, 0x11, sizeof g->buffer);
    memset(g->out, 0x11, sizeof g->out);
    memset(g->out2, 0x11, sizeof g->out2);
    memset(g->out3, 0x11, sizeof g->out3);
    for (int i = 0; i < 2; i++) {
        strcpy(g->halves[i], i ? "right" : "left");
        g->parts[i] = (struct iovec){g->halves[i], strlen(g->halves[i])};
    }
    g->one[0] = (struct iovec){g->buffer, 64};
    g->remote[0] = (struct iovec){page, 9};
    g->number = g->apart_from_number = -7;
    g->option = 50000;
    g->length = 110;
    g->allow = 0x7fff0000;
    g->set = 1ul << (SIGUSR2 - 1);
    g->action.handler = 1;
    g->pair.mask = &g->set;
    g->pair.bytes = 8;
    g->stack = (stack_t){.ss_sp = alternate, .ss_size = sizeof alternate};
    g->polled = (struct pollfd){.fd = null, .events = POLLOUT};
    FD_SET(null, &g->readable);
    FD_SET(null, &g->writable);
    g->soon.tv_nsec = 1000;
    g->no_time.tv_nsec = 2000000000;
    g->timer[1].tv_sec = 1000;
    for (int i = 0; i < 4; i++) g->seconds[i] = 1000 * (i + 1);
    g->offset = 3;
    g->address.sun_family = AF_UNIX;
    strcpy(g->address.sun_path, fresh);
    g->message.msg_hdr = (struct msghdr){.msg_iov = g->parts, .msg_iovlen = 2};
    g->got_message.msg_hdr = (struct msghdr){.msg_name = g->out, .msg_namelen = 110, .msg_iov = g->one, .msg_iovlen = 1, .msg_control = g->out2, .msg_controllen = 64};
    g->operation.sem_op = 3;
    g->sent.type = 5;
    strcpy(g->sent.text, "mail");
    g->lock.l_type = F_RDLCK;
    g->lock.l_pid = -1;
    for (int i = 0; i < 8; i++) g->groups[i] = 7 + i;
    g->capabilities.version = 0x20080522;
    syscall(SYS_capget, &g->capabilities, g->sets);
    g->info.si_signo = QUEUED;
    g->info.si_code = SI_QUEUE;
    g->info.si_value.sival_int = 1234567;
    cpu_set_t mine;
    sched_getaffinity(0, sizeof mine, &mine);
    int first = 0;
    while (!CPU_ISSET(first, &mine)) first++;
    g->processors[first / 8] = 1 << first % 8;
    g->event.sigev_notify = SIGEV_NONE;
    g->awaited = (struct epoll_event){.events = EPOLLIN, .data.u64 = 77};
    g->nodes = 1;
    g->pages[0] = page;
    g->mail[1] = 4;
    g->mail[2] = 64;
    g->performance.type = 1;
    g->performance.size = 64;
    g->performance.config = 9;
    g->handle.bytes = g->full_handle.bytes = sizeof g->handle.rest;
    int id;
    syscall(SYS_name_to_handle_at, AT_FDCWD, "/usr", &g->full_handle, &id, 0);
    g->scheduling.size = 48;
    g->how[0] = O_RDWR;
    g->mounting[0] = 1;
    g->ruleset = 1;
    g->rule.allowed = 1;
    g->rule.parent = null;
    g->waiters[0].word = (unsigned long)&word;
    g->waiters[1].word = (unsigned long)&word2;
    g->waiters[0].flags = g->waiters[1].flags = 2 | 128;
    g->range[1] = 4096;
    struct statx status = {};
    syscall(SYS_statx, AT_FDCWD, "/usr", 0, 0x4000, &status);
    g->mounted.size = g->all_mounts.size = 24;
    g->mounted.id = ((unsigned long *)&status)[18];
    g->mounted.parameter = 2;
    g->all_mounts.id = -1;
    g->attribute_in.value = g->text;
    g->attribute_in.size = 4;
    g->attribute_out.value = g->buffer;
    g->attribute_out.size = 64;
}

/* What the children need before the call, and what they look at after it, in private memory. */
static int ends[2], made;
static long result;

static long sum(const void *bytes, long n) {
    unsigned long h = 14695981039346656037ul;
    for (long i = 0; i < n; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211ul;
    return n < 0 ? -errno : (long)h;
}
static int filled(void) { return syscall(SYS_pipe2, ends, O_NONBLOCK) == 0 && write(ends[1], "text", 4) == 4 ? ends[0] : -1; }
static int into(void) { return syscall(SYS_pipe2, ends, O_NONBLOCK) == 0 ? ends[1] : -1; }
static long received(void) {
    char got[64];
    return sum(got, read(ends[0], got, sizeof got));
}
static struct sockaddr_un called_so(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, name);
    return address;
}
static int socket_at(int kind, const char *name) {
    int fd = socket(AF_UNIX, kind | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = called_so(name);
    bind(fd, (struct sockaddr *)&address, sizeof address);
    return fd;
}
static int stream(void) { return made = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0); }
static int listener(void) {
    int fd = socket_at(SOCK_STREAM, fresh);
    listen(fd, 1);
    return fd;
}
static int caller_of(int fd) { return fd < 0 ? fd : stream(); }
static int connected_to(int *listens) {
    *listens = listener();
    int fd = socket_at(SOCK_STREAM, other);
    struct sockaddr_un address = called_so(fresh);
    connect(fd, (struct sockaddr *)&address, sizeof address);
    return fd;
}
static int connected(void) {
    int listens;
    return connected_to(&listens);
}
static int called(void) {
    int listens;
    connected_to(&listens);
    return listens;
}
static int sender(void) {
    ends[0] = socket_at(SOCK_DGRAM, fresh);
    return socket(AF_UNIX, SOCK_DGRAM, 0);
}
static int sent(void) {
    int to = socket_at(SOCK_DGRAM, fresh), from = socket_at(SOCK_DGRAM, other);
    struct sockaddr_un address = called_so(fresh);
    sendto(from, "text", 4, 0, (struct sockaddr *)&address, sizeof address);
    return to;
}
static int into_socket(void) { return socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends) == 0 ? ends[1] : -1; }
static long buffer_bytes(void) {
    int bytes = 0;
    socklen_t length = sizeof bytes;
    getsockopt(made, SOL_SOCKET, SO_SNDBUF, &bytes, &length);
    return bytes;
}
static long action_of(int signal) {
    unsigned long action[4] = {};
    syscall(SYS_rt_sigaction, signal, 0, action, 8);
    return action[0];
}
static long mask(void) {
    long set = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, &set, 8);
    return set;
}
static long set_itimer(void) {
    struct { long words[4]; } left = {};
    syscall(SYS_getitimer, ITIMER_VIRTUAL, &left);
    return left.words[2] > 990;
}
static int begotten(void) {
    int pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) syscall(SYS_exit_group, 7);
    return pid;
}
static long grandchild(void) {
    if (result == 0) syscall(SYS_exit_group, 9);
    int status = -1;
    syscall(SYS_wait4, result, &status, 0, 0);
    return status;
}
static int semaphore(void) { return made = syscall(SYS_semget, 0, 1, 0600); }
static long semaphore_value(void) {
    long value = syscall(SYS_semctl, made, 0, GETVAL, 0);
    syscall(SYS_semctl, made, 0, IPC_RMID, 0);
    return value;
}
static int queue(void) { return made = syscall(SYS_msgget, 0, 0600); }
static int filled_queue(void) {
    struct { long type; char text[8]; } message = {6, "letter"};
    syscall(SYS_msgsnd, queue(), &message, 6, 0);
    return made;
}
static long taken(void) {
    struct { long type; char text[64]; } message = {};
    long n = syscall(SYS_msgrcv, made, &message, 64, 0, IPC_NOWAIT);
    syscall(SYS_msgctl, made, IPC_RMID, 0);
    return n < 0 ? n : sum(&message, 8 + n);
}
static int open_folder(void) { return open(folder, O_RDONLY | O_DIRECTORY); }
static int open_proc(void) { return open("/proc", O_RDONLY | O_DIRECTORY); }
static int open_directory(void) { return open("/usr", O_RDONLY | O_DIRECTORY); }
static int another(void) { return open(fresh, O_CREAT | O_RDWR, 0600); }
static long where(void) {
    char name[64];
    return sum(name, syscall(SYS_getcwd, name, sizeof name));
}
static int in_groups(void) {
    gid_t some[3] = {3, 5, 7};
    syscall(SYS_setgroups, 3, some);
    return 64;
}
static long groups(void) {
    gid_t all[64];
    return sum(all, 4 * syscall(SYS_getgroups, 64, all));
}
static void pending(int signal) {
    unsigned long set = 1ul << (signal - 1);
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, 0, 8);
    kill(getpid(), signal);
}
static int blocking(void) {
    unsigned long set = 1ul << (QUEUED - 1);
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, 0, 8);
    return getpid();
}
static long queued(void) {
    unsigned long set = 1ul << (QUEUED - 1);
    struct timespec none = {};
    siginfo_t info = {};
    return syscall(SYS_rt_sigtimedwait, &set, &info, &none, 8) < 0 ? -errno : info.si_value.sival_int;
}
/* Which of the two the file gives. */
static long signalled(void) {
    pending(SIGUSR1), pending(SIGUSR2);
    struct pollfd one = {.fd = result, .events = POLLIN};
    unsigned info[32], which = 0;
    while (poll(&one, 1, 0) == 1 && read(result, info, sizeof info) == sizeof info) which = 100 * which + info[0];
    return which;
}
static long modified(void) {
    struct stat status = {};
    stat(path, &status);
    return status.st_mtim.tv_sec;
}
static long device(void) {
    struct stat status = {};
    stat("/usr", &status);
    return status.st_dev;
}
static long named(void) {
    char name[16] = "";
    prctl(PR_GET_NAME, name, 0, 0, 0);
    return sum(name, 16);
}
static long core_limit(void) {
    unsigned long limit[2] = {};
    syscall(SYS_getrlimit, RLIMIT_CORE, limit);
    return sum(limit, 16);
}
static long root(void) { return access("/share", R_OK); }
/* The name of the machine itself must stay what it is. */
static const char *own_host(const char *name) { return syscall(SYS_unshare, CLONE_NEWUTS) == 0 ? name : 0; }
static long host(int domain) {
    char names[6][65];
    syscall(SYS_uname, names);
    return sum(names[domain ? 5 : 1], 65);
}
static char *with_attribute(char *given) {
    syscall(SYS_setxattr, path, "user.given", "kept", 4, 0);
    return given;
}
static long attribute(void) {
    char value[64];
    return sum(value, syscall(SYS_getxattr, path, "user.given", value, sizeof value));
}
static long processors(void) {
    char set[128] = {};
    syscall(SYS_sched_getaffinity, 0, sizeof set, set);
    return sum(set, sizeof set);
}
static int timer(void) {
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &made);
    return made;
}
static int running_timer(void) {
    struct timespec times[2] = {{}, {1000, 0}};
    syscall(SYS_timer_settime, timer(), 0, times, 0);
    return made;
}
static long timer_set(void) {
    struct timespec times[2] = {};
    syscall(SYS_timer_gettime, made, times);
    return times[1].tv_sec > 900 && times[1].tv_sec <= 1000;
}
static int timer_file(void) { return made = syscall(SYS_timerfd_create, CLOCK_MONOTONIC, 0); }
static int running_timer_file(void) {
    struct timespec times[2] = {{}, {1000, 0}};
    syscall(SYS_timerfd_settime, timer_file(), 0, times, 0);
    return made;
}
static long timer_file_set(void) {
    struct timespec times[2] = {};
    syscall(SYS_timerfd_gettime, made, times);
    return times[1].tv_sec > 900 && times[1].tv_sec <= 1000;
}
static int unready(void) { return made = epoll_create1(0); }
static int ready(void) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 99};
    epoll_ctl(unready(), EPOLL_CTL_ADD, filled(), &event);
    return made;
}
static long noticed(void) {
    struct epoll_event event = {};
    return syscall(SYS_epoll_wait, made, &event, 1, 0) * 1000 + event.data.u64;
}
static int mailbox(void) {
    long attributes[8] = {0, 4, 64};
    return made = syscall(SYS_mq_open, mailbox_name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, attributes);
}
static int full_mailbox(void) {
    syscall(SYS_mq_timedsend, mailbox(), "text", 4, 9, 0);
    return made;
}
static char *with_mailbox(char *given) { return mailbox() < 0 ? 0 : given; }
static long mail(void) {
    char text[64];
    unsigned priority;
    return sum(text, syscall(SYS_mq_timedreceive, made, text, sizeof text, &priority, 0));
}
static long mail_bytes(void) {
    long attributes[8] = {};
    syscall(SYS_mq_getsetattr, result, 0, attributes);
    return attributes[1] * 10000 + attributes[2];
}
static long key(void) {
    char value[64];
    return sum(value, syscall(SYS_keyctl, 11, result, value, sizeof value, 0));
}
static char *with_key(char *given) {
    syscall(SYS_add_key, "user", "renamed", "v", 1, -2);
    return given;
}
static int watcher(void) { return syscall(SYS_inotify_init1, 0); }
static int notifier(void) { return syscall(SYS_fanotify_init, 0, O_RDONLY); }
static long page_text(void) { return sum(page, 64); }
static int own_pidfd(void) { return syscall(434, getpid(), 0); }
static long file_name(void) {
    char link[32] = "/proc/self/fd/0", name[64];
    link[14] = '0' + result % 10;
    return result > 9 ? 0 : sum(name, syscall(SYS_readlink, link, name, sizeof name));
}
static int opened_system(void) { return syscall(430, "tmpfs", 0); }
static int ruleset(void) {
    unsigned long handled = 1;
    return syscall(444, &handled, 8, 0);
}

/* The calls. */
enum kind { SAME, VARIES };
static long after;
#define ROW(name, then, ...)                                                           \
    static void name(struct given *g) {                                                \
        result = syscall(__VA_ARGS__, 0, 0, 0, 0, 0, 0);                               \
        if (result < 0) result = -errno;                                               \
        after = then;                                                                  \
    }
#define JOINED(a, b) a##b
#define NAMED(a, b) JOINED(a, b)
#define CALL(nr, name, ...) ROW(NAMED(name##_, __LINE__), 0, nr, __VA_ARGS__)
#define THEN(nr, name, then, ...) ROW(NAMED(name##_, __LINE__), then, nr, __VA_ARGS__)
#define VARY(nr, name, then, ...) THEN(nr, name, then, __VA_ARGS__)
#define BLIND(nr, name, ...) CALL(nr, name, __VA_ARGS__)
#define NONE(nr, name, reason)
#include "calls.inc"
#undef CALL
#undef THEN
#undef VARY
#undef BLIND
static const struct { const char *name; enum kind kind; void (*run)(struct given *); } ROWS[] = {
#define CALL(nr, name, ...) {#name, SAME, NAMED(name##_, __LINE__)},
#define THEN(nr, name, then, ...) CALL(nr, name)
#define VARY(nr, name, then, ...) {#name, VARIES, NAMED(name##_, __LINE__)},
#define BLIND(nr, name, ...) CALL(nr, name)
#include "calls.inc"
};
enum { COUNT = sizeof ROWS / sizeof *ROWS };

/* The folder as each child finds it. */
static void reset(void) {
    unlink(fresh), rmdir(fresh), unlink(other), unlink(path), mkdir(folder, 0700), unlink(name_of_link);
    if (symlink("text-of-the-link", name_of_link)) abort();
    syscall(SYS_mq_unlink, mailbox_name);
    close(file);
    if (open(path, O_CREAT | O_RDWR, 0600) != file || write(file, "0123456789", 10) != 10 || lseek(file, 0, SEEK_SET)) abort();
    memset(page, 0, 4096);
    strcpy(page, "page text");
    word = word2 = made = 0;
}

struct outcome { long status, result, after, files; };

/* What there is at a name: kind, rights and content. */
static long look(const char *name) {
    struct { unsigned mode; char content[64]; } seen = {};
    struct stat status;
    if (lstat(name, &status)) return 0;
    seen.mode = status.st_mode;
    if (S_ISLNK(status.st_mode)) readlink(name, seen.content, sizeof seen.content);
    if (S_ISREG(status.st_mode)) {
        int fd = open(name, O_RDONLY);
        if (read(fd, seen.content, sizeof seen.content) < 0) seen.mode = 0;
        close(fd);
    }
    return sum(&seen, sizeof seen);
}

__attribute__((noinline)) static struct outcome in_child(unsigned row, struct given *g) {
    reset();
    result = after = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        ROWS[row].run(g);
        _exit(0);
    }
    int status = -1;
    if (waitpid(pid, &status, 0) != pid) status = -2;
    long files[] = {look(path), look(fresh), look(other), look(folder), look(name_of_link)};
    return (struct outcome){status, result, after, sum(files, sizeof files)};
}

/* The first byte that differs, where a pointer into the structure is the same as one to the same place of the other; -1: none. */
static long difference(const struct given *a, const struct given *b) {
    const unsigned long *x = (const unsigned long *)a, *y = (const unsigned long *)b;
    for (unsigned long i = 0; i < sizeof *a / 8; i++)
        if (x[i] != y[i] && (x[i] - (unsigned long)a != y[i] - (unsigned long)b || x[i] - (unsigned long)a >= sizeof *a)) return 8 * i;
    return -1;
}

static void nothing(int signal) { (void)signal; }

int main(int count, char **arguments) {
    static struct given private, untouched;
    unsigned nodes = bz_nodes();
    node = bz_node();
    if (node == 0) {
        bz_publish(0, bz_alloc(COUNT * sizeof(struct given)));
        bz_publish(2, bz_alloc(COUNT * sizeof(long)));
    }
    struct given *shared = bz_lookup(0);
    long *seen = bz_lookup(2);
    strcpy(scratch, "/tmp/blizzard-calls-XXXXXX");
    if (node == 0) {
        if (!mkdtemp(scratch)) return 2;
        char *everywhere = bz_alloc(64);
        strcpy(everywhere, scratch);
        bz_publish(1, everywhere);
    }
    strcpy(scratch, bz_lookup(1));
    mailbox_name = scratch + 5;
    const struct { char *to; const char *name; } NAMES[] = {{path, "path"}, {fresh, "fresh"}, {other, "other"}, {folder, "folder"}, {name_of_link, "link"}};
    for (int i = 0; i < 5; i++) snprintf(NAMES[i].to, sizeof path, "%s/%s", scratch, NAMES[i].name);
    null = open("/dev/null", O_RDWR);
    file = dup(null);
    page = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGUSR1, nothing);
    uint64_t wrong = 0;
    for (unsigned me = 0; me < nodes; me++) {
        unsigned writer = (me + 1) % nodes;
        if (node == me) memset(shared, 0x5a, COUNT * sizeof *shared);
        bz_barrier();
        if (node == writer)
            for (unsigned row = 0; row < COUNT; row++) fill(&shared[row]);
        bz_barrier();
        for (unsigned row = 0; node == me && row < COUNT; row++) {
            if (count > 1 && strcmp(arguments[1], ROWS[row].name)) continue;
            fill(&untouched);
            fill(&private);
            struct given *g = &shared[row];
            struct outcome right = in_child(row, &private), is = in_child(row, g);
            int same = right.status == 0 && is.status == 0 && is.after == right.after && is.files == right.files;
            if (ROWS[row].kind == SAME) same &= is.result == right.result && difference(g, &private) < 0;
            else same &= (is.result < 0 ? is.result == right.result : right.result >= 0) && (difference(g, &untouched) < 0) == (difference(&private, &untouched) < 0);
            if (count > 1 || getenv("ALL_CALLS")) fprintf(stderr, "%s: %ld, after it %ld, written at %ld\n", ROWS[row].name, right.result, right.after, difference(&private, &untouched));
            if (!same) {
                fprintf(stderr, "node %u, %s: status %ld for %ld, result %ld for %ld, after it %ld for %ld, files %ld for %ld, differs at %ld\n", node, ROWS[row].name,
                        is.status, right.status, is.result, right.result, is.after, right.after, is.files, right.files, difference(g, &private));
                wrong++;
            }
            seen[row] = sum(g, sizeof *g);
        }
        bz_barrier();
        /* What the kernel wrote is what another node reads. */
        for (unsigned row = 0; node == writer && row < COUNT; row++)
            if (count == 1 && sum(&shared[row], sizeof *shared) != seen[row]) {
                fprintf(stderr, "node %u, %s: another node sees other bytes\n", me, ROWS[row].name);
                wrong++;
            }
        bz_barrier();
    }
    wrong = bz_reduce_sum_u64(wrong);
    if (node == 0) {
        reset();
        unlink(path), rmdir(folder), unlink(name_of_link), rmdir(scratch);
        printf("%llu wrong\n", (unsigned long long)wrong);
    }
    return wrong != 0;
}
