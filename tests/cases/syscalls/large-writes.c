//# uses: blizzard
//# flags: -O2
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 1 2 3
//# timeout: 120
/* Writes of much more than a pipe or a socket holds, from memory that other nodes have just written, while those call the writer out of the kernel all the time.
 * Without a handler each writes everything, however often the runtime's own signal interrupts it: it returned a part, which few programs expect. A handler of
 * the program's ends a write with what is written so far; EINTR only comes where nothing is. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 3 << 17, PARTS = 7, PORTION = 2048 };
static unsigned char *text;
static uint64_t *called, *over;
static volatile sig_atomic_t handled;

static void on_alarm(int number) { (void)number, handled = 1; }

static unsigned char byte_of(size_t i) { return (unsigned char)(i * 7 + i / 251); }

/* Reads slowly, from a stream that begins at byte `begin` of the text; how many bytes there were, or how many were wrong, negative. */
static long reader(int from) {
    unsigned char portion[PORTION];
    long bytes = 0, wrong = 0;
    for (ssize_t n; (n = read(from, portion, sizeof portion)) > 0;) {
        for (ssize_t i = 0; i < n; i++) wrong += portion[i] != byte_of((bytes + i) % BYTES);
        bytes += n;
        if (bytes / PORTION % 8 == 0) usleep(300);
    }
    return wrong ? -wrong : bytes;
}

typedef ssize_t transfer_t(int to, size_t done);
static ssize_t by_write(int to, size_t done) { return write(to, text + done, BYTES - done); }
static int parts_from(struct iovec *parts, size_t done) {
    int count = 0;
    for (size_t k = 0; k < PARTS; k++) {
        size_t begin = BYTES / PARTS * k, end = k == PARTS - 1 ? BYTES : BYTES / PARTS * (k + 1);
        if (begin < done) begin = done;
        if (begin < end) parts[count++] = (struct iovec){text + begin, end - begin};
    }
    return count;
}
static ssize_t by_writev(int to, size_t done) {
    struct iovec parts[PARTS];
    return writev(to, parts, parts_from(parts, done));
}
static ssize_t by_send(int to, size_t done) { return send(to, text + done, BYTES - done, 0); }
static ssize_t by_sendmsg(int to, size_t done) {
    struct iovec parts[PARTS];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = parts_from(parts, done)};
    return sendmsg(to, &message, 0);
}
static int file;
static ssize_t by_sendfile(int to, size_t done) {
    off_t at = done;
    return sendfile(to, file, &at, BYTES - done);
}

static const struct { const char *name; transfer_t *run; int socket; } WAYS[] = {
    {"write to a pipe", by_write, 0}, {"writev to a pipe", by_writev, 0}, {"write to a socket", by_write, 1}, {"writev to a socket", by_writev, 1},
    {"send", by_send, 1}, {"sendmsg", by_sendmsg, 1}, {"sendfile to a socket", by_sendfile, 1},
};
enum { NO_HANDLER, RESTARTS, INTERRUPTS, KINDS };

/* One text through a pipe or a socket; how often it went wrong. */
static uint64_t send_all(unsigned way, int kind) {
    int ends[2];
    if (WAYS[way].socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) return 1;
    int from = ends[0], to = ends[1];
    pid_t pid = fork();
    if (pid == 0) {
        close(to);
        _exit(reader(from) != BYTES);
    }
    close(from);
    if (kind != NO_HANDLER) {
        struct sigaction action = {.sa_handler = on_alarm, .sa_flags = kind == RESTARTS ? SA_RESTART : 0};
        sigaction(SIGALRM, &action, NULL);
        struct itimerval often = {.it_interval = {.tv_usec = 3000}, .it_value = {.tv_usec = 1000}};
        setitimer(ITIMER_REAL, &often, NULL);
    }
    uint64_t wrong = 0;
    size_t done = 0;
    while (done < BYTES) {
        handled = 0;
        ssize_t n = WAYS[way].run(to, done);
        int error = errno;
        if (n > 0) done += n;
        /* Less than everything, and EINTR, come of a handler only. */
        int right = done == BYTES || (handled && (n > 0 || (n == -1 && error == EINTR && kind == INTERRUPTS)));
        if (!right) {
            fprintf(stderr, "%s, handler %d: %zd of %zu, %s\n", WAYS[way].name, kind, n, BYTES - done, n < 0 ? strerror(error) : "");
            wrong++;
            if (n <= 0) break;
        }
    }
    struct itimerval never = {0};
    setitimer(ITIMER_REAL, &never, NULL);
    close(to);
    int status = 1;
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "%s, handler %d: the text that arrives is not the one that was sent\n", WAYS[way].name, kind);
        wrong++;
    }
    return wrong;
}

int main(void) {
    unsigned nodes = bz_nodes(), node = bz_node();
    if (node == 0) {
        bz_publish(0, bz_alloc(BYTES));
        bz_publish(1, bz_alloc(64));
        bz_publish(2, bz_alloc(64));
    }
    text = bz_lookup(0);
    called = bz_lookup(1);
    over = bz_lookup(2);
    char path[] = "/tmp/blizzard-large-writes-XXXXXX";
    file = mkstemp(path);
    unlink(path);
    uint64_t wrong = 0;
    for (unsigned way = 0; way < sizeof WAYS / sizeof *WAYS; way++)
        for (int kind = 0; kind < KINDS; kind++) {
            bz_barrier();
            if (node == nodes - 1)
                for (size_t i = 0; i < BYTES; i++) text[i] = byte_of(i);
            if (node == 0) *over = 0;
            bz_barrier();
            if (node == 0) {
                if (pwrite(file, text, BYTES, 0) != BYTES) wrong++;
                wrong += send_all(way, kind);
                __atomic_store_n(over, 1, __ATOMIC_SEQ_CST);
            } else {
                /* What node 0 owns and others take from it: it is called out of the kernel for each. */
                for (uint64_t k = 0; !__atomic_load_n(over, __ATOMIC_SEQ_CST); k++) {
                    __atomic_fetch_add(called, 1, __ATOMIC_SEQ_CST);
                    text[k % BYTES] = byte_of(k % BYTES);
                    usleep(100);
                }
            }
        }
    bz_barrier();
    wrong = bz_reduce_sum_u64(wrong);
    if (node == 0) printf("%llu wrong\n", (unsigned long long)wrong);
    return wrong != 0;
}
