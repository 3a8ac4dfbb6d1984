//# flags: -O2
//# compilers: gcc
//# nodes: 2
//# guarded-nodes: 2
/* Handlers begin on an alternate stack only if their actions say so; one that they set themselves stays. A handler for crashes that never runs changes nothing of small stacks. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

enum { PAGES = 64, WORDS = PAGES * 512, BELOW = 1 << 16, STACK = 1536, ROUNDS = 300, READ = 2, END = 3 };
static volatile long *shared;
static long sum;
static char alternate[1 << 16], other[1 << 16];
static volatile int is_there[65], went[65];

static void note(int signal) {
    char here;
    char *volatile at = &here;
    is_there[signal] = at >= alternate && at < alternate + sizeof alternate;
    went[signal]++;
}

static void set_another(int signal, siginfo_t *info, void *at) {
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    ucontext_t *context = at;
    (void)signal, (void)info;
    context->uc_mcontext.gregs[REG_RIP] += 2;
    sigaltstack(&stack, NULL);
}

__attribute__((noinline, naked)) static void on(void *top, void (*work)(void)) {
    (void)top, (void)work;
    __asm__("push %rbx\n mov %rsp, %rbx\n mov %rdi, %rsp\n call *%rsi\n mov %rbx, %rsp\n pop %rbx\n ret");
}

__attribute__((noinline)) static void work(void) {
    for (int k = 0; k < PAGES; k++) {
        shared[k * 512] += k;
        sum += shared[k * 512 + 1];
    }
}

static void stacks(void) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate}, now;
    struct sigaction ill = {.sa_sigaction = set_another, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &ill, NULL);
    __asm__ volatile("ud2");
    sigaltstack(NULL, &now);
    printf("set in a handler: %d\n", now.ss_sp == (void *)other);
    sigaltstack(&stack, NULL);
    static const int signals[] = {SIGTRAP, SIGUSR1, SIGSEGV, SIGFPE};
    for (int flags = 0; flags < 2; flags++) {
        for (int k = 0; k < 4; k++) {
            struct sigaction action = {.sa_handler = note, .sa_flags = flags ? SA_ONSTACK : 0};
            sigaction(signals[k], &action, NULL);
            raise(signals[k]);
            printf("%d:%d ", went[signals[k]], is_there[signals[k]]);
        }
        __asm__ volatile("int3");
        printf("%d:%d\n", went[SIGTRAP], is_there[SIGTRAP]);
    }
}

int main(void) {
    static unsigned char area[BELOW + STACK] __attribute__((aligned(4096)));
    if (bz_node() == 0) bz_publish(1, bz_alloc(WORDS * sizeof *shared));
    shared = bz_lookup(1);
    if (bz_node() == 0) stacks();
    bz_barrier();
    if (bz_node() != 0) {
        while (!shared[END]) shared[READ];
        return bz_barrier(), 0;
    }
    for (int has_stack = 1; has_stack >= 0; has_stack--) {
        stack_t stack = {.ss_sp = alternate, .ss_flags = has_stack ? 0 : SS_DISABLE, .ss_size = sizeof alternate};
        struct sigaction crash = {.sa_handler = note};
        sigaltstack(&stack, NULL);
        sigaction(SIGSEGV, &crash, NULL);
        went[SIGSEGV] = 0;
        memset(area, 0xa5, BELOW);
        for (int round = 0; round < ROUNDS; round++) on(area + sizeof area, work);
        int changed = 0;
        for (int k = 0; k < BELOW; k++) changed += area[k] != 0xa5;
        printf("%d %d\n", changed, went[SIGSEGV]);
    }
    shared[END] = 1;
    bz_barrier();
    printf("%ld\n", sum);
    return 0;
}
