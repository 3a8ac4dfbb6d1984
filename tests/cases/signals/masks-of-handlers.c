//# flags: -O2
//# compilers: gcc
//# nodes: 2
//# guarded-nodes: 2
/* A signal that is put off, because it comes where the program must not be interrupted, waits as if it had come later: the mask of another handler that begins meanwhile
 * keeps it out. In a child of vfork it comes before the call returns that sends it, and says nothing to a program that the child executes, nor to the parent. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { WORDS = 512, TURNS = 500, CHILDREN = 20 };
extern char **environ;
static volatile unsigned long *shared;
static volatile unsigned long sink;
static volatile int inside, nested, blocked, faults, ran;

static void on_alarm(int signal) {
    (void)signal;
    nested += inside;
}

static void on_fault(int signal, siginfo_t *info, void *at) {
    ucontext_t *context = at;
    (void)info;
    inside = 1;
    faults++;
    for (int k = 0; k < 200; k++) sink += shared[k % 64];
    inside = 0;
    if (signal == SIGILL) context->uc_mcontext.gregs[REG_RIP] += 2;
    blocked += sigismember(&context->uc_sigmask, SIGALRM);
}

__attribute__((noinline)) static void work(int is_trap) {
    unsigned long sum = 0;
    for (int k = 1; k < 64; k += 8) sum += shared[k] ^= sum;
    if (is_trap) __asm__ volatile("int3" ::: "memory");
    else __asm__ volatile("ud2" ::: "memory");
    sink += sum;
}

static void count(int signal) {
    (void)signal;
    ran++;
}

static int end_of(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int children(char *program) {
    char *arguments[] = {program, "executed", NULL};
    int wrong = 0;
    signal(SIGUSR1, count);
    for (int k = 0; k < CHILDREN; k++) {
        ran = 0;
        pid_t child = vfork();
        if (child == 0) {
            kill(getpid(), SIGUSR1);
            if (ran != 1) _exit(1);
            execve(program, arguments, environ);
            _exit(2);
        }
        wrong += end_of(child) != 0;
    }
    /* What the parent blocks stays blocked, whatever a child does. */
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &before);
    for (int k = 0; k < CHILDREN; k++) {
        kill(getpid(), SIGUSR1);
        ran = 0;
        pid_t child = vfork();
        if (child == 0) {
            sigprocmask(SIG_UNBLOCK, &set, NULL);
            kill(getpid(), SIGUSR1);
            _exit(ran != 1);
        }
        wrong += end_of(child) != 0;
        ran = 0;
        for (int word = 0; word < WORDS; word++) sink += shared[word];
        getppid();
        wrong += ran != 0;
    }
    signal(SIGUSR1, SIG_IGN);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return wrong;
}

int main(int count_of_arguments, char **arguments) {
    if (count_of_arguments > 1) {
        sigset_t mask;
        sigprocmask(SIG_BLOCK, NULL, &mask);
        return sigismember(&mask, SIGUSR1);
    }
    if (bz_node() == 0) bz_publish(0, bz_alloc(WORDS * sizeof *shared));
    shared = bz_lookup(0);
    struct sigaction alarm = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigfillset(&fault.sa_mask);
    sigaction(SIGALRM, &alarm, NULL);
    sigaction(SIGTRAP, &fault, NULL);
    sigaction(SIGILL, &fault, NULL);
    bz_barrier();
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int turn = 0; turn < TURNS; turn++) work(turn % 2);
    setitimer(ITIMER_REAL, &never, NULL);
    int wrong = children(arguments[0]);
    if (nested || blocked || wrong || bz_node() == 0) printf("%d %d %d %d\n", nested, blocked, faults, wrong);
    bz_barrier();
    return 0;
}
