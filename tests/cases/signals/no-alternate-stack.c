//# flags: -O0 | -O2
//# link: -pie | -no-pie | -static
//# nodes: 1 2
/* A program that sets no alternate stack has none: its handlers run below what they interrupt, whatever their flags, and the kernel's answers and the
 * contexts of handlers say so. So it is in children of fork and vfork, too, and in theirs. A stack that a child sets is the child's. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { NEAR = 1 << 16, BYTES = 1 << 16 };
static volatile int runs, on_the_stack, told_none, told_on;
static char own[BYTES];

/* The kernel builds its frame, red zone and vector state included, right below what it interrupts. */
static void handler(int number, siginfo_t *info, void *at) {
    char here;
    ucontext_t *context = at;
    stack_t now;
    (void)number, (void)info;
    const uint64_t rsp = (uint64_t)context->uc_mcontext.gregs[REG_RSP];
    runs++;
    on_the_stack += (uint64_t)&here < rsp && rsp - (uint64_t)&here < NEAR;
    told_none += context->uc_stack.ss_sp == NULL && context->uc_stack.ss_size == 0;
    told_on += sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_ONSTACK;
    if (number == SIGILL && info->si_code > 0) context->uc_mcontext.gregs[REG_RIP] += 2;
    if (number == SIGSEGV && info->si_code > 0) mprotect((void *)((uint64_t)info->si_addr & -4096ul), 4096, PROT_READ | PROT_WRITE);
}

static const int signals[] = {SIGUSR1, SIGUSR2, SIGSEGV, SIGBUS, SIGTRAP, SIGFPE, SIGILL};
enum { SIGNALS = sizeof signals / sizeof *signals };

/* All that can be seen; a different number for each way to differ. */
static int seen(int flags) {
    stack_t now;
    memset(&now, 1, sizeof now);
    if (sigaltstack(NULL, &now)) return 1;
    if (now.ss_sp != NULL || now.ss_flags != SS_DISABLE || now.ss_size != 0) return 2;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    runs = on_the_stack = told_none = told_on = 0;
    for (int i = 0; i < SIGNALS; i++) {
        if (sigaction(signals[i], &action, NULL)) return 3;
        raise(signals[i]);
    }
    if (runs != SIGNALS) return 4;
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[5] = 1;
    __asm__ volatile("ud2");
    __asm__ volatile("int3");
    munmap(page, 4096);
    if (runs != SIGNALS + 3) return 5;
    if (on_the_stack != runs) return 6;
    if (told_none != runs) return 7;
    if (told_on) return 8;
    return 0;
}
static int seen_both(void) {
    const int without = seen(0), with = seen(SA_ONSTACK);
    return without ? without : with ? 10 + with : 0;
}

static int own_stack(void) {
    stack_t wanted = {.ss_sp = own, .ss_size = BYTES}, none = {.ss_flags = SS_DISABLE}, old;
    if (sigaltstack(&wanted, &old) || old.ss_flags != SS_DISABLE) return 30;
    runs = on_the_stack = told_on = 0;
    raise(SIGUSR1);
    if (runs != 1 || on_the_stack || told_on != 1) return 31;
    if (sigaltstack(&none, &old) || old.ss_sp != own) return 32;
    return seen_both();
}

static int ended(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
static int forked(int depth) {
    pid_t pid = fork();
    if (pid == 0) {
        int result = seen_both();
        if (!result) result = own_stack();
        if (!result && depth) result = forked(depth - 1);
        _exit(result);
    }
    return ended(pid);
}
/* In a function of its own: the child uses the frame. */
__attribute__((noinline)) static int vforked(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        int result = seen_both();
        if (!result) result = own_stack();
        _exit(result);
    }
    return ended(pid);
}
static int of_clone(void *argument) { return (void)argument, seen_both(); }
static int cloned(int flags) {
    char *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t pid = clone(of_clone, stack + BYTES, flags | SIGCHLD, NULL);
    return ended(pid);
}

int main(void) {
    static char text[1000];
    int n = 0;
    n += sprintf(text + n, "at first %d\n", seen_both());
    n += sprintf(text + n, "fork %d\n", forked(1));
    n += sprintf(text + n, "vfork %d\n", vforked());
    n += sprintf(text + n, "clone %d\n", cloned(0));
    n += sprintf(text + n, "clone like vfork %d\n", cloned(CLONE_VM | CLONE_VFORK));
    n += sprintf(text + n, "later %d\n", seen_both());
    n += sprintf(text + n, "own %d\n", own_stack());
    n += sprintf(text + n, "at last %d\n", seen_both());
    if (bz_node() == 0) fputs(text, stdout);
    return 0;
}
