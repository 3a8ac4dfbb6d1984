//# flags: -O0 | -O2
//# link: -pie | -no-pie | -static
//# nodes: 1 2
/* The actions for SIGSEGV and SIGBUS, behind which the runtime has a handler of its own: what the program reads back, flags, children of fork and vfork, signals
 * that somebody sends, and death without a handler. A process that a fault ends must die by the same signal, though a check may have raised another. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile int got, code, depth;
static volatile uint64_t address;
static FILE *out;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    got = number, code = info->si_code, address = (uint64_t)info->si_addr;
    siglongjmp(back, 1);
}
static void on_sent(int number) { got = number; }

static void by_rbp(uint64_t at) { __asm__ volatile("push %%rbp; mov %0, %%rbp; movl (%%rbp), %%eax; pop %%rbp" : : "r"(at) : "memory", "rax"); }
static void load(uint64_t at) { (void)*(volatile int *)at; }
static void store(uint64_t at) { *(volatile int *)at = 1; }

static void set(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    sigaction(number, &action, NULL);
}
static void fault(const char *what, void (*access)(uint64_t), uint64_t at) {
    got = 0;
    if (sigsetjmp(back, 1) == 0) access(at);
    fprintf(out, "%s: signal %d code %d at %#lx\n", what, got, code, (unsigned long)address);
}
static void ended(const char *what, pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        fprintf(out, "%s: dies by %d\n", what, WTERMSIG(status));
    else
        fprintf(out, "%s: exit %d\n", what, WEXITSTATUS(status));
}

/* A child without a handler. */
static void dies(const char *what, void (*access)(uint64_t), uint64_t at) {
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        access(at);
        _exit(0);
    }
    ended(what, pid);
}
static void sends(uint64_t number) { raise((int)number); }

/* In a function of its own: the child uses the frame. */
__attribute__((noinline)) static void vfork_child(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        struct sigaction old, none = {.sa_handler = SIG_DFL};
        int right = sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_sigaction == on_fault && sigaction(SIGSEGV, &none, &old) == 0 &&
                    old.sa_sigaction == on_fault && sigaction(SIGBUS, NULL, &old) == 0 && old.sa_sigaction == on_fault;
        _exit(right ? 42 : 1);
    }
    ended("vfork", pid);
}

int main(void) {
    static char *text;
    static size_t bytes;
    out = open_memstream(&text, &bytes);
    struct sigaction old;
    for (int number = SIGBUS; number <= SIGSEGV; number += SIGSEGV - SIGBUS) {
        sigaction(number, NULL, &old);
        fprintf(out, "at first %d: default %d flags %#x\n", number, old.sa_handler == SIG_DFL, old.sa_flags & ~0x4000000);
        signal(number, SIG_IGN);
        raise(number);
        signal(number, SIG_DFL);
        sigaction(number, NULL, &old);
        fprintf(out, "again %d: default %d\n", number, old.sa_handler == SIG_DFL);
        set(number, on_fault, SA_NODEFER | SA_ONSTACK);
        sigaction(number, NULL, &old);
        fprintf(out, "then %d: mine %d flags %#x\n", number, old.sa_sigaction == on_fault, old.sa_flags & ~0x4000000);
    }
    long nowhere = syscall(SYS_rt_sigaction, SIGSEGV, 8, NULL, 8);
    fprintf(out, "nowhere: %ld %d\n", nowhere, errno == EFAULT);
    fault("null", load, 0);
    fault("not canonical", load, 0x1234567890abcdef);
    fault("by rbp", by_rbp, 0x1234567890abcdef);
    fault("the kernel's", store, -4096ul);
    vfork_child();
    fault("after vfork", by_rbp, 0x1234567890abcdef);
    pid_t pid = fork();
    if (pid == 0) {
        fault("in a child", by_rbp, 0xffff800000000010);
        int right = got == SIGSEGV && address == 0xffff800000000010;
        set(SIGBUS, on_fault, 0);
        fault("in a child", by_rbp, 0x1234567890abcdef);
        _exit(right && got == SIGBUS ? 42 : 1);
    }
    ended("fork", pid);
    dies("null", load, 0);
    dies("not canonical", load, 0x1234567890abcdef);
    dies("not canonical by rbp", by_rbp, 0x1234567890abcdef);
    dies("the kernel's", store, -8ul);
    dies("where the tags are", load, 0x90000000);
    dies("where the tags are", store, 0x90000000);
    dies("sent SIGSEGV", sends, SIGSEGV);
    dies("sent SIGBUS", sends, SIGBUS);
    struct sigaction once = {.sa_handler = on_sent, .sa_flags = SA_RESETHAND};
    sigaction(SIGSEGV, &once, NULL);
    got = 0;
    raise(SIGSEGV);
    sigaction(SIGSEGV, NULL, &old);
    fprintf(out, "once: %d, then default %d\n", got, old.sa_handler == SIG_DFL);
    pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "kill -SEGV $$", (char *)NULL);
        _exit(1);
    }
    ended("another program", pid);
    fclose(out);
    if (bz_node() == 0) fputs(text, stdout);
    return 0;
}
