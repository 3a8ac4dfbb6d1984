//# uses: blizzard
//# flags: -O0 | -O2 -fno-tree-loop-distribute-patterns
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 2 3
/* Timer signals whose handler uses shared memory, while the program uses the same blocks: the handler must never run between a check
 * and its access, nor inside the runtime. Masks, waits and interrupted calls keep their meaning. */
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static unsigned nodes;
static volatile long *shared;
static volatile long ticks;
static int pipe_in = -1;

static void tick(int signal) {
    (void)signal;
    ticks++;
    shared[64 + node]++;  /* a word of this node in a block that all nodes write */
    shared[128] = node;
    if (pipe_in >= 0 && write(pipe_in, "x", 1) != 1) failures++;
}

static void timer_us(long first, long interval) {
    struct itimerval t = {{0, interval}, {0, first}};
    if (setitimer(ITIMER_REAL, &t, 0)) failures++;
}

static void handle(int flags) {
    struct sigaction action = {0};
    action.sa_handler = tick;
    action.sa_flags = flags;
    sigfillset(&action.sa_mask);
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
}

int main(void) {
    node = bz_node();
    nodes = bz_nodes();
    if (node == 0) {
        shared = bz_alloc(1024 * sizeof(long));
        bz_publish(0, (void *)shared);
    } else {
        shared = bz_lookup(0);
    }
    bz_barrier();
    handle(SA_RESTART);
    timer_us(300, 300);
    /* Each node adds to words of its own, which lie side by side with everybody else's. */
    unsigned long x = node + 1, sum = 0;
    for (int i = 0; i < 8000 || ticks < 5; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
        unsigned long k = (x >> 33) % 32;
        shared[256 + k * nodes + node] += k + 1;
        sum += k + 1;
        if (i % 500 == 0) getppid();
    }
    timer_us(0, 0);
    bz_barrier();
    unsigned long found = 0;
    for (int k = 0; k < 32; k++) found += shared[256 + k * nodes + node];
    CHECK(found == sum);
    CHECK(shared[64 + node] == ticks);
    CHECK(ticks >= 5);
    bz_barrier();

    /* A blocked signal waits; a wait with a mask of its own lets it in. */
    sigset_t all, old, wait;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, &old) == 0);
    long before = ticks;
    timer_us(500, 0);
    usleep(2000);
    for (int i = 0; i < 2000; i++) shared[512 + node] += 1;
    CHECK(ticks == before);
    sigfillset(&wait);
    sigdelset(&wait, SIGALRM);
    CHECK(sigsuspend(&wait) == -1 && errno == EINTR && ticks == before + 1);
    timer_us(500, 0);
    CHECK(ppoll(0, 0, 0, &wait) == -1 && errno == EINTR && ticks == before + 2);
    CHECK(sigprocmask(SIG_SETMASK, &old, 0) == 0);
    /* Masks where nothing is: as the kernel says it, not the end of the node. (glibc reads the mask itself.) */
    CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, 8ul, 0, 8) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, 0, 8ul, 8) == -1 && errno == EFAULT);

    /* A read into shared memory that a signal interrupts: with and without SA_RESTART. The timer repeats, because its first signal may
     * come before the call has begun to wait. */
    int p[2];
    CHECK(pipe(p) == 0);
    char *buffer = (char *)(shared + 700 + 16 * node);
    handle(0);
    timer_us(2000, 2000);
    CHECK(read(p[0], buffer, 1) == -1 && errno == EINTR && ticks > before + 2);
    timer_us(0, 0);
    handle(SA_RESTART);
    pipe_in = p[1];
    timer_us(2000, 2000);
    CHECK(read(p[0], buffer, 1) == 1 && *(volatile char *)buffer == 'x');
    timer_us(0, 0);
    pipe_in = -1;
    before = ticks;
    CHECK(raise(SIGALRM) == 0 && ticks == before + 1);
    bz_barrier();
    CHECK(shared[64 + node] == ticks);
    return failed();
}
