//# nodes: 1 2
/* Signals of the program and accesses of the kernel, beside handlers that take blocks away: a check and its access stay together (section 2), whoever
 * interrupts them; and signals and calls are otherwise what they are without the interface. */
#define _GNU_SOURCE
#include "taken.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void invalidate(void) {
    if (TPPI_get_blk_acc(b) == TPPI_Blk_Writable) TPPI_change_blk_acc(b, TPPI_TAG_BLK_SIZE, TPPI_Blk_Invalidate);
}

static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    EXPECT("signals", sigaction(signal, &action, 0) == 0);
}
static void every(long us) {
    struct itimerval t = {{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &t, 0);
}
static void once(long us) {
    struct itimerval t = {{0, 0}, {0, us}};
    setitimer(ITIMER_REAL, &t, 0);
}

static volatile int alarms;
static void polling_alarm(int signal) {
    (void)signal;
    alarms++;
    polls();
}
static void between_check_and_access(void) {
    int wrong = 0, before = taken;
    handle(SIGALRM, polling_alarm, 0);
    every(60);
    for (double end = now() + 0.7; now() < end;)
        for (int i = 0; i < 100; i++) {
            TPPI_send(TPPI_self_address, take);
            wrong += loads();
        }
    every(0);
    EXPECT("2", wrong == 0 && alarms > 100 && taken > before && given > 0);
}

/* SIGTRAP is also what trap bytes raise: one that is sent waits for the same places. */
static volatile int traps, nested;
static void polling_trap(int signal) {
    static volatile int inside;
    (void)signal;
    if (inside++) nested++;
    if (++traps == 1) raise(SIGTRAP);
    polls();
    inside--;
}
static void sent_traps(void) {
    handle(SIGTRAP, polling_trap, 0);
    EXPECT("signals", raise(SIGTRAP) == 0 && traps == 2 && nested == 0);
    sigset_t trap, old, seen;
    sigemptyset(&trap);
    sigaddset(&trap, SIGTRAP);
    EXPECT("signals", sigprocmask(SIG_BLOCK, &trap, &old) == 0 && raise(SIGTRAP) == 0 && traps == 2);
    EXPECT("signals", sigprocmask(SIG_SETMASK, &old, &seen) == 0 && sigismember(&seen, SIGTRAP) && traps == 3);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGTRAP};
    struct itimerspec often = {{0, 60000}, {0, 60000}};
    timer_t timer;
    EXPECT("signals", timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, 0) == 0);
    int wrong = 0, before = taken;
    for (double end = now() + 0.5; now() < end;)
        for (int i = 0; i < 100; i++) {
            TPPI_send(TPPI_self_address, take);
            wrong += loads();
        }
    EXPECT("signals", timer_delete(timer) == 0);
    EXPECT("2", wrong == 0 && nested == 0 && traps > 100 && taken > before);
    handle(SIGTRAP, SIG_DFL, 0);
}

/* A handler that an instruction has raised runs in the middle, and goes on there. */
static volatile int *guarded_page;
static void raised(int signal) {
    (void)signal;
    TPPI_send(TPPI_self_address, take);
    polls();
    mprotect((void *)guarded_page, 4096, PROT_READ | PROT_WRITE);
}
__attribute__((noinline)) static int around(volatile int *shared, volatile int *private) {
    return (shared[0] ^ GOOD) | private[0] | (shared[1] ^ GOOD) | (shared[2] ^ GOOD);
}
static void raised_in_the_middle(void) {
    guarded_page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    handle(SIGSEGV, raised, 0);
    for (int i = 0; i < 200; i++) {
        int before = taken;
        mprotect((void *)guarded_page, 4096, PROT_NONE);
        EXPECT("2", around((volatile int *)b, guarded_page) == 0 && taken == before + 1);
    }
    handle(SIGSEGV, SIG_DFL, 0);
}

static int ends[2];
static volatile int rings;
static void writes(int signal) {
    (void)signal;
    rings++;
    (void)!write(ends[1], "x", 1);
}
/* A signal that arrives on the way into a call is not left behind it. */
static void calls_that_wait(void) {
    char byte;
    handle(SIGALRM, writes, 0);
    for (int i = 0; i < 600; i++) {
        rings = 0;
        TPPI_send(TPPI_self_address, take);
        once(1 + i * 37 % 150);
        EXPECT("2", loads() == 0);
        ssize_t n;
        while ((n = read(ends[0], &byte, 1)) < 0 && errno == EINTR) EXPECT("signals", rings == 1);
        EXPECT("signals", n == 1 && rings == 1);
    }
    /* With a mask of its own. */
    sigset_t alarm, none, old;
    sigemptyset(&none);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    handle(SIGALRM, polling_alarm, 0);
    for (int i = 0; i < 300; i++) {
        EXPECT("signals", sigprocmask(SIG_BLOCK, &alarm, &old) == 0 && !sigismember(&old, SIGALRM));
        int before = alarms;
        once(1 + i * 37 % 150);
        EXPECT("2", loads() == 0);
        while (alarms == before)
            EXPECT("signals", (i % 2 ? ppoll(0, 0, 0, &none) : sigsuspend(&none)) == -1 && errno == EINTR);
        sigprocmask(SIG_SETMASK, &old, 0);
    }
    every(3000);
    for (int i = 0; i < 20; i++) {
        int before = alarms;
        EXPECT("signals", pause() == -1 && errno == EINTR && alarms > before);
        struct timespec t = {100, 0}, left = {0, 0};
        EXPECT("signals", nanosleep(&t, &left) == -1 && errno == EINTR && left.tv_sec > 90);
        EXPECT("signals", read(ends[0], &byte, 1) == -1 && errno == EINTR);
    }
    every(0);
}

/* What the program blocks stays blocked, and it is told of nothing else. */
static void masks(void) {
    sigset_t alarm, old;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    handle(SIGALRM, polling_alarm, 0);
    every(60);
    int wrong = 0, told = 0;
    for (double end = now() + 0.3; now() < end;) {
        sigprocmask(SIG_BLOCK, &alarm, &old);
        told += sigismember(&old, SIGALRM);
        int before = alarms;
        polls();
        (void)loads();
        getppid();
        wrong += alarms != before;
        sigprocmask(SIG_SETMASK, &old, 0);
        (void)loads();
    }
    every(0);
    EXPECT("signals", wrong == 0 && told == 0);
}

static volatile int depth, deepest, runs;
static void nests(int signal) {
    runs++;
    if (++depth > deepest) deepest = depth;
    if (runs == 1) raise(signal);
    depth--;
}
static volatile int early_runs;
static void early(int signal, siginfo_t *info, void *context) {
    (void)context;
    early_runs += info->si_signo == signal;
}
static void set_early(void) {
    struct sigaction action = {.sa_sigaction = early, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGUSR1, &action, 0);
}
/* In front of all constructors, and so of the interface. */
__attribute__((section(".preinit_array"), used)) static void (*first)(void) = set_early;

static void actions(void) {
    struct sigaction seen, set = {.sa_handler = nests, .sa_flags = SA_NODEFER};
    EXPECT("signals", sigaction(SIGUSR1, 0, &seen) == 0 && seen.sa_sigaction == early && sigismember(&seen.sa_mask, SIGUSR2));
    EXPECT("signals", (seen.sa_flags & ~0x4000000) == (SA_SIGINFO | SA_RESTART));
    EXPECT("signals", raise(SIGUSR1) == 0 && early_runs == 1);
    EXPECT("signals", sigaction(SIGUSR1, &set, &seen) == 0 && seen.sa_sigaction == early);
    EXPECT("signals", sigaction(SIGUSR1, 0, &seen) == 0 && seen.sa_handler == nests && (seen.sa_flags & ~0x4000000) == SA_NODEFER);
    runs = deepest = 0;
    EXPECT("signals", raise(SIGUSR1) == 0 && runs == 2 && deepest == 2);
    handle(SIGUSR1, nests, 0);
    runs = deepest = 0;
    EXPECT("signals", raise(SIGUSR1) == 0 && runs == 2 && deepest == 1);
    /* Ignored by default. */
    handle(SIGURG, nests, (int)SA_RESETHAND);
    runs = 1;
    EXPECT("signals", raise(SIGURG) == 0 && raise(SIGURG) == 0 && runs == 2);
    EXPECT("signals", sigaction(SIGURG, 0, &seen) == 0 && seen.sa_handler == SIG_DFL);
    EXPECT("signals", signal(SIGUSR1, SIG_IGN) == nests && raise(SIGUSR1) == 0 && signal(SIGUSR1, SIG_DFL) == SIG_IGN);
    EXPECT("signals", sigaction(SIGKILL, &set, 0) == -1 && errno == EINVAL && sigaction(65, 0, &seen) == -1);
    EXPECT("signals", sigaction(SIGKILL, 0, &seen) == 0 && seen.sa_handler == SIG_DFL);
}

/* SA_RESTART: the call goes on, with its memory accessible again. */
static void third_writes(int signal) {
    (void)signal;
    TPPI_send(TPPI_self_address, take);
    polls();
    if (++rings == 3) (void)!write(ends[1], good, TPPI_TAG_BLK_SIZE);
}
static void restarts(void) {
    handle(SIGALRM, third_writes, SA_RESTART);
    for (int i = 0; i < 20; i++) {
        rings = 0;
        every(1000);
        EXPECT("signals", read(ends[0], b, TPPI_TAG_BLK_SIZE) == TPPI_TAG_BLK_SIZE);
        every(0);
        EXPECT("2", rings >= 3 && loads() == 0);
    }
}

/* 3.2.7: the kernel's accesses fault as the program's do. */
static void accesses_of_the_kernel(void) {
    char copy[TPPI_TAG_BLK_SIZE];
    for (int i = 0; i < 10; i++) {
        int before = given;
        invalidate();
        EXPECT("3.2.7", write(ends[1], b, TPPI_TAG_BLK_SIZE) == TPPI_TAG_BLK_SIZE && given == before + 1);
        EXPECT("3.2.7", TPPI_get_blk_acc(b) == TPPI_Blk_Writable);
        EXPECT("3.2.7", read(ends[0], copy, sizeof copy) == sizeof copy && memcmp(copy, good, sizeof copy) == 0);
        EXPECT("3.2.7", write(ends[1], copy, sizeof copy) == sizeof copy);
        invalidate();
        EXPECT("3.2.7", read(ends[0], b, TPPI_TAG_BLK_SIZE) == TPPI_TAG_BLK_SIZE && given == before + 2 && loads() == 0);
        invalidate();
        struct iovec parts[2] = {{copy, 8}, {b + 8, 8}};
        EXPECT("3.2.7", writev(ends[1], parts, 2) == 16 && given == before + 3);
        EXPECT("3.2.7", read(ends[0], copy, 16) == 16 && memcmp(copy + 8, good, 8) == 0);
        invalidate();
        struct timespec *t = (struct timespec *)b;
        EXPECT("3.2.7", clock_getres(CLOCK_MONOTONIC, t) == 0 && t->tv_sec == 0);
        memcpy(b, good, sizeof good);
    }
}

static volatile long sum;
static void adds(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    sum += info->si_value.sival_int;
    polls();
}
/* Each queued signal comes once, with its value; processes are made as ever. */
static void processes(void) {
    enum { SIGNALS = 3000 };
    struct sigaction action = {.sa_sigaction = adds, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGRTMIN, &action, 0);
    sum = 0;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        for (int i = 1; i <= SIGNALS; i++)
            while (sigqueue(parent, SIGRTMIN, (union sigval){.sival_int = i}))
                sched_yield();
        _exit(getppid() == parent ? 7 : 8);
    }
    int wrong = 0, status = 0;
    for (double end = now() + 20; sum < SIGNALS * (SIGNALS + 1l) / 2 && now() < end;) {
        TPPI_send(TPPI_self_address, take);
        wrong += loads();
        getppid();
    }
    EXPECT("2", wrong == 0);
    EXPECT("signals", sum == SIGNALS * (SIGNALS + 1l) / 2);
    EXPECT("signals", waitpid(child, &status, 0) == child && status == 7 << 8);
    handle(SIGALRM, polling_alarm, SA_RESTART);
    every(150);
    for (int i = 0; i < 20; i++) {
        EXPECT("signals", system("exit 5") == 5 << 8);
        char *const argv[] = {"sh", "-c", "exit 6", 0}, *const envp[] = {0};
        EXPECT("signals", posix_spawn(&child, "/bin/sh", 0, 0, argv, envp) == 0);
        EXPECT("signals", waitpid(child, &status, 0) == child && status == 6 << 8);
        child = vfork();
        if (child == 0) _exit(3);
        EXPECT("signals", waitpid(child, &status, 0) == child && status == 3 << 8);
        child = fork();
        if (child == 0) {
            /* The timer is the parent's; handler and mask are copies. */
            sigset_t mask;
            int before = alarms;
            sigprocmask(0, 0, &mask);
            raise(SIGALRM);
            _exit(alarms == before + 1 && !sigismember(&mask, SIGALRM) ? 4 : 9);
        }
        EXPECT("signals", waitpid(child, &status, 0) == child && status == 4 << 8);
        EXPECT("2", loads() == 0);
    }
    int before = alarms;
    while (alarms == before)
        ;
    every(0);
}

/* A message comes to a handler on the alternate stack. Its own handler runs elsewhere, and what it touches faults for the first time: that signal must not begin on the alternate stack's top. */
static volatile int touched;
static void touches(TPPI_NodeId src, int size) {
    (void)src, (void)size;
    touched += *(volatile int *)b == GOOD;
}
static void sends(int signal) {
    (void)signal;
    int before = touched;
    TPPI_send(TPPI_self_address, touches);
    while (touched == before) polls();
}
static void on_the_alternate_stack(void) {
    enum { BYTES = 1 << 16 };
    static char place[BYTES];
    stack_t stack = {.ss_sp = place, .ss_size = BYTES}, seen;
    EXPECT("2", loads() == 0);
    EXPECT("signals", sigaltstack(&stack, 0) == 0);
    handle(SIGUSR1, sends, SA_ONSTACK);
    for (int i = 1; i <= 20; i++) EXPECT("signals", raise(SIGUSR1) == 0 && touched == i);
    EXPECT("signals", sigaltstack(0, &seen) == 0 && seen.ss_sp == place && seen.ss_size == BYTES && seen.ss_flags == 0);
    handle(SIGUSR1, SIG_DFL, 0);
    stack.ss_flags = SS_DISABLE;
    EXPECT("signals", sigaltstack(&stack, 0) == 0);
}

int main(void) {
    prepare();
    EXPECT("signals", pipe(ends) == 0);
    actions();
    accesses_of_the_kernel();
    raised_in_the_middle();
    calls_that_wait();
    restarts();
    masks();
    processes();
    between_check_and_access();
    sent_traps();
    on_the_alternate_stack();
    return done();
}
