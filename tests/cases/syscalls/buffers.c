//# uses: blizzard
//# flags: -O0 | -O2 -fno-tree-loop-distribute-patterns
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 2 4
/* System calls whose buffers, structures, strings and vectors lie in shared memory that another node wrote last. Each node works
 * on its own half-kilobytes of one area; node 0 fills them, so each call of the other nodes begins with misses. */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { AREA = 16384, PART = 512 };

/* Loops of this file, not functions of the C library: so what a call finds invalid, no library has fetched for it. */
static int same(const volatile char *a, const volatile char *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i]) return 0;
    return 1;
}
static void fill(volatile char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) p[i] = (char)(seed + i * 7);
}
static void text(volatile char *p, const char *s) {
    do *p++ = *s; while (*s++);
}

static void streams(char *area) {
    int p[2];
    char *a = area + 5, *b = area + PART + 31, *c = area + 2 * PART + 60;
    CHECK(pipe(p) == 0);
    CHECK(write(p[1], a, 400) == 400 && read(p[0], b, 400) == 400 && same(a, b, 400));
    struct iovec *v = (struct iovec *)(area + 3 * PART);
    v[0] = (struct iovec){a, 100};
    v[1] = (struct iovec){a + 100, 0};
    v[2] = (struct iovec){a + 100, 157};
    CHECK(writev(p[1], v, 3) == 257);
    v[0] = (struct iovec){c, 7};
    v[1] = (struct iovec){c + 7, 250};
    CHECK(readv(p[0], v, 2) == 257 && same(a, c, 257));
    CHECK(write(p[1], a, 33) == 33);
    int *pending = (int *)(area + 3 * PART + 124);
    *pending = -1;
    CHECK(ioctl(p[0], FIONREAD, pending) == 0 && *pending == 33);
    struct pollfd *f = (struct pollfd *)(area + 3 * PART + 60);
    f[0] = (struct pollfd){p[0], POLLIN, 0};
    f[1] = (struct pollfd){p[1], POLLOUT, 0};
    CHECK(poll(f, 2, -1) == 2 && f[0].revents == POLLIN && f[1].revents == POLLOUT);
    close(p[0]);
    close(p[1]);
    int s[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    struct msghdr *m = (struct msghdr *)(area + 4 * PART);
    *m = (struct msghdr){0};
    m->msg_iov = v;
    m->msg_iovlen = 2;
    v[0] = (struct iovec){a, 64};
    v[1] = (struct iovec){a + 200, 65};
    /* A descriptor is passed as well. */
    struct cmsghdr *control = (struct cmsghdr *)(area + 5 * PART + 56);
    m->msg_control = control;
    m->msg_controllen = CMSG_SPACE(sizeof(int));
    *control = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    *(int *)CMSG_DATA(control) = s[1];
    CHECK(sendmsg(s[0], m, 0) == 129);
    *(int *)CMSG_DATA(control) = -1;
    v[0] = (struct iovec){b, 100};
    v[1] = (struct iovec){b + 100, 100};
    CHECK(recvmsg(s[1], m, 0) == 129 && same(a, b, 64) && same(a + 200, b + 64, 65));
    int passed = *(int *)CMSG_DATA(control);
    CHECK(passed > s[1] && write(passed, a, 3) == 3 && read(s[0], b, 3) == 3 && same(a, b, 3) && close(passed) == 0);
    /* A pointer that leads nowhere is an error of the call. */
    CHECK(syscall(SYS_readv, s[0], 8, 1) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_sendmsg, s[0], 8, 0) == -1 && errno == EFAULT);
    CHECK(send(s[1], c, 9, 0) == 9 && recv(s[0], b + 300, 9, 0) == 9 && same(c, b + 300, 9));
    close(s[0]);
    close(s[1]);
}

static void files(char *area) {
    char *a = area, *b = area + PART, *path = area + 2 * PART + 59;
    char name[] = "/tmp/blizzard-syscalls-XXXXXX";
    int fd = mkstemp(name);
    text(path, name);
    CHECK(fd >= 0 && pwrite(fd, a, 300, 1000) == 300 && pread(fd, b + 9, 300, 1000) == 300 && same(a, b + 9, 300));
    struct stat *st = (struct stat *)(area + 3 * PART + 40), plain;
    CHECK(syscall(SYS_newfstatat, AT_FDCWD, path, st, 0) == 0 && st->st_size == 1300);
    CHECK(fstat(fd, &plain) == 0 && plain.st_ino == st->st_ino);
    CHECK(access(path, R_OK) == 0);
    int again = open(path, O_RDONLY);
    CHECK(again >= 0 && lseek(again, 1000, SEEK_SET) == 1000 && read(again, b, 300) == 300 && same(a, b, 300));
    close(again);
    CHECK(unlink(path) == 0 && access(name, F_OK) == -1 && errno == ENOENT);
    close(fd);
    text(path, "/proc/self/exe");
    ssize_t n = readlink(path, b, PART);
    CHECK(n > 1 && b[0] == '/');
    CHECK(syscall(SYS_getcwd, b, PART) > 1 && b[0] == '/');
}

static void structures(char *area) {
    struct timespec *t = (struct timespec *)(area + 56);
    t[0].tv_sec = 0;
    t[0].tv_nsec = 1000;
    CHECK(syscall(SYS_nanosleep, t, t + 1) == 0);
    t[1].tv_sec = -5;
    CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, t + 1) == 0 && t[1].tv_sec >= 0);
    struct utsname *u = (struct utsname *)(area + PART + 3);
    CHECK(uname(u) == 0 && same(u->sysname, "Linux", 6));
    unsigned char *r = (unsigned char *)(area + 3 * PART);
    for (int i = 0; i < 256; i++) r[i] = 0;
    CHECK(getrandom(r, 256, 0) == 256);
    int zeros = 0;
    for (int i = 0; i < 256; i++) zeros += r[i] == 0;
    CHECK(zeros < 100);
    struct itimerval *old = (struct itimerval *)(area + 2 * PART);
    old->it_value.tv_sec = 77;
    CHECK(getitimer(ITIMER_REAL, old) == 0 && old->it_value.tv_sec == 0);
}

int main(void) {
    node = bz_node();
    char *all;
    if (node == 0) {
        all = bz_alloc(bz_nodes() * AREA);
        bz_publish(0, all);
    } else {
        all = bz_lookup(0);
    }
    char *mine = all + node * AREA;
    void (*steps[])(char *) = {streams, files, structures};
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 3; i++) {
            bz_barrier();
            if (node == 0) fill(all, bz_nodes() * AREA, round + i);
            bz_barrier();
            steps[i](mine);
        }
    bz_barrier();
    /* What the kernel wrote for one node is what another node reads. */
    int p[2];
    CHECK(pipe(p) == 0 && write(p[1], "written by the kernel", 21) == 21 && read(p[0], mine, 21) == 21);
    bz_barrier();
    char *next = all + (node + 1) % bz_nodes() * AREA;
    CHECK(same(next, "written by the kernel", 21));
    return failed();
}
