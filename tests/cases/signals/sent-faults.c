//# flags: -O0 | -O2
//# link: -pie | -no-pie | -static
//# nodes: 1 2
//# guarded-nodes: 2
/* SIGSEGV, SIGBUS, SIGFPE and SIGILL that somebody sends, next to those that instructions raise: what a handler is told, the default, ignored, blocked, by a handler
 * that runs, by a mask. A fault while the signal is blocked or ignored ends the process, whatever handler it has. The runtime needs SIGSEGV for itself where
 * memory is guarded, and must not let a signal that waits stand in the way of an instruction that raises the same one. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static FILE *out;
static volatile int got, code, pid_right, value, depth, deepest, runs, again;
static volatile uint64_t address, blocked_below;
static volatile char *page;
static sigjmp_buf back;
static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { SIGNALS = sizeof signals / sizeof *signals };

static uint64_t mask_of(const sigset_t *set) {
    uint64_t word;
    memcpy(&word, set, sizeof word);
    return word & (1ul << (SIGSEGV - 1) | 1ul << (SIGBUS - 1) | 1ul << (SIGFPE - 1) | 1ul << (SIGILL - 1));
}
static uint64_t mask_now(void) {
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    return mask_of(&set);
}

static void on_signal(int number, siginfo_t *info, void *at) {
    (void)at;
    got = number, code = info->si_code, runs++;
    if (code <= 0) {
        pid_right = info->si_pid == getpid() && info->si_uid == getuid();
        value = code == SI_QUEUE ? info->si_value.sival_int : 0;
    } else {
        address = (uint64_t)info->si_addr;
    }
    blocked_below = mask_now();
    if (++depth > deepest) deepest = depth;
    if (again) {
        again = 0;
        /* Of its own: waits for the end of this handler, unless that has SA_NODEFER. */
        raise(number);
        fprintf(out, "  in the handler runs %d\n", runs);
    }
    depth--;
    if (code > 0) siglongjmp(back, 1);
}
static void set(int number, int flags, int with) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = flags | SA_SIGINFO};
    if (with) sigaddset(&action.sa_mask, with);
    sigaction(number, &action, NULL);
}
static void told(const char *what) {
    fprintf(out, "%s: runs %d signal %d code %d pid %d value %d mask %#lx deepest %d\n", what, runs, got, code, pid_right, value, (unsigned long)blocked_below, deepest);
    got = code = pid_right = value = runs = deepest = 0, blocked_below = 0;
}

static void trap(int number) {
    if (number == SIGSEGV) page[7] = 1;
    if (number == SIGFPE) {
        volatile int zero = 0;
        value = 1 / zero;
    }
    if (number == SIGILL) __asm__ volatile("ud2");
    if (number == SIGBUS) {
        FILE *file = tmpfile();
        volatile char *nothing = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
        nothing[9] = 1;
    }
}
static void raised(const char *what, int number) {
    address = 0;
    if (sigsetjmp(back, 1) == 0) trap(number);
    fprintf(out, "%s: signal %d code %d at the page %d\n", what, got, code, number != SIGSEGV || (char *)address == page + 7);
    got = code = runs = deepest = depth = 0;
}

static void send(int number, int how) {
    union sigval with = {.sival_int = 77};
    if (how == 0) raise(number);
    if (how == 1) kill(getpid(), number);
    if (how == 2) sigqueue(getpid(), number, with);
    if (how == 3) pthread_kill(pthread_self(), number);
}
static void block(int how, int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(how, &set, NULL);
}
static void ended(const char *what, pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    fprintf(out, "%s: %s %d\n", what, WIFSIGNALED(status) ? "dies by" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* What a process of its own does, each with a different end. */
static void child(const char *what, int number, int act) {
    fflush(out);
    pid_t pid = fork();
    if (pid == 0) {
        set(number, 0, 0);
        if (act == 0) signal(number, SIG_DFL), raise(number);
        if (act == 1) signal(number, SIG_DFL), trap(number);
        if (act == 2) block(SIG_BLOCK, number), trap(number);
        if (act == 3) signal(number, SIG_IGN), raise(number), trap(number);
        if (act == 4) {
            block(SIG_BLOCK, number), raise(number);
            sigset_t pending;
            sigpending(&pending);
            int waits = sigismember(&pending, number) && runs == 0;
            block(SIG_UNBLOCK, number);
            _exit(waits && runs == 1 ? 40 : 41);
        }
        _exit(1);
    }
    ended(what, pid);
}

/* Whether an ignored signal lets a sleep go on. */
static int sleeps_through(int number) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number};
    struct itimerspec soon = {{0, 0}, {0, 2000000}};
    struct timespec time = {0, 20000000};
    timer_t timer;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &soon, NULL);
    const int result = nanosleep(&time, NULL);
    timer_delete(timer);
    return result == 0;
}

/* A timer's signals while memory is shared, in plain code and between its accesses. */
static volatile int ticks;
static void on_tick(int number, siginfo_t *info, void *at) {
    (void)number, (void)at;
    if (info->si_code == SI_TIMER && info->si_value.sival_int == 5) ticks++;
}
static void timed(int number, volatile uint64_t *words, unsigned node, unsigned nodes) {
    struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(number, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number, .sigev_value.sival_int = 5};
    struct itimerspec each = {{0, 300000}, {0, 300000}};
    timer_t timer;
    ticks = 0;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &each, NULL)) fprintf(out, "no timer\n");
    uint64_t done = 0;
    for (; ticks < 60 || done < 3000; done++) {
        words[done % 64 * nodes + node]++;
        words[(64 + done % 64) * nodes + node] = words[done % 64 * nodes + (node + 1) % nodes];
    }
    timer_delete(timer);
    bz_barrier();
    uint64_t sum = 0;
    for (int i = 0; i < 64; i++) sum += words[i * nodes + node], words[i * nodes + node] = 0;
    fprintf(out, "timer %d: %d\n", number, sum == done);
    bz_barrier();
}

int main(void) {
    static char *text;
    static size_t bytes;
    const unsigned node = bz_node(), nodes = bz_nodes();
    out = open_memstream(&text, &bytes);
    page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (node == 0) bz_publish(0, bz_alloc(128 * nodes * sizeof(uint64_t)));
    volatile uint64_t *words = bz_lookup(0);
    for (int i = 0; i < SIGNALS; i++) {
        const int number = signals[i], other = signals[(i + 1) % SIGNALS];
        fprintf(out, "signal %d\n", number);
        for (int how = 0; how < 4; how++) {
            set(number, how % 2 ? SA_ONSTACK : 0, how == 2 ? other : 0);
            send(number, how);
            told("sent");
        }
        fprintf(out, "mask %#lx\n", (unsigned long)mask_now());
        again = 1;
        send(number, 0);
        told("deferred");
        set(number, SA_NODEFER, 0);
        again = 1;
        send(number, 0);
        told("nested");
        raised("raised", number);
        set(number, 0, 0);
        raised("raised", number);
        raised("raised again", number);
        block(SIG_BLOCK, number);
        fprintf(out, "mask %#lx\n", (unsigned long)mask_now());
        send(number, 1);
        told("blocked");
        words[(node + i) % 64] += 0;
        block(SIG_UNBLOCK, number);
        told("unblocked");
        signal(number, SIG_IGN);
        for (int how = 0; how < 4; how++) send(number, how);
        fprintf(out, "slept through %d\n", sleeps_through(number));
        words[64 * nodes + node]++;
        bz_barrier();
        set(number, SA_RESETHAND, 0);
        send(number, 2);
        told("once");
        struct sigaction old;
        sigaction(number, NULL, &old);
        fprintf(out, "default %d\n", old.sa_handler == SIG_DFL);
        child("default, sent", number, 0);
        child("default, raised", number, 1);
        child("blocked, raised", number, 2);
        child("ignored, raised", number, 3);
        child("blocked, sent", number, 4);
        timed(number, words, node, nodes);
        /* A new program inherits what is ignored. */
        signal(number, SIG_IGN);
        fflush(out);
        pid_t pid = fork();
        if (pid == 0) {
            char send[64];
            snprintf(send, sizeof send, "kill -%d $$; exit 7", number);
            execl("/bin/sh", "sh", "-c", send, (char *)NULL);
            _exit(1);
        }
        ended("inherits", pid);
        signal(number, SIG_DFL);
    }
    fclose(out);
    if (node == 0) fputs(text, stdout);
    return 0;
}
