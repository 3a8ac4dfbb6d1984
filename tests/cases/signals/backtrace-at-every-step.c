//# flags: -O0 | -O2 | -O3 | -Os
//# link: -pie | -no-pie -s
/* A function is run in single steps, and at each step the handler walks the stack: main's caller must be found, also while an
 * inserted check has moved the stack pointer to free a register. Wrong unwind rows do not only hide the caller: the walk
 * reads whatever it takes for a return address, and crashes. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline))
typedef unsigned long word;

static void *caller_of_main;
static volatile long steps, lost;

static void step(int number) {
    void *frames[64];
    int n = backtrace(frames, 64), found = 0;
    for (int i = 0; i < n; i++) found |= frames[i] == caller_of_main;
    steps++;
    lost += !found;
}

/* The trap flag is set and cleared in the interrupted context, so that no code of this file has to touch it. The signal comes from an
 * instruction that programs may not execute: a system call would take the steps through the runtime, whose frames hold at calls. */
static void toggle(int number, siginfo_t *info, void *context) {
    ucontext_t *c = context;
    c->uc_mcontext.gregs[REG_EFL] ^= 0x100;
    c->uc_mcontext.gregs[REG_RIP] += 1;
}
static inline void stepping(void) { __asm__ volatile("cli" ::: "memory"); }

/* More live values than registers. */
NOINLINE word work(word *restrict a, word *restrict b, word *restrict c, word *restrict d, word *restrict e, word n) {
    word s0 = 1, s1 = 2, s2 = 3, s3 = 4, s4 = 5, s5 = 6, s6 = 7, s7 = 8;
    for (word i = 0; i < n; i++) {
        s0 += a[i] * s1;
        s1 ^= b[i] + s2;
        s2 += c[i] ^ s3;
        s3 -= d[i] * s4;
        s4 += e[i] | s5;
        s5 ^= a[n - i] + s6;
        s6 += b[n - i] * s7;
        s7 -= c[n - i] ^ s0;
        d[i] = s0 + s4;
        e[n - i] = s5 ^ s7;
        if (s0 > s5 && s1 < s6) s3++;
    }
    return s0 ^ s1 ^ s2 ^ s3 ^ s4 ^ s5 ^ s6 ^ s7;
}

NOINLINE word through(word **p, word n) { return work(p[0], p[1], p[2], p[3], p[4], n) + 1; }

int main(void) {
    word *p[5], n = 20;
    for (int i = 0; i < 5; i++) {
        p[i] = malloc((n + 1) * sizeof(word));
        memset(p[i], i + 1, (n + 1) * sizeof(word));
    }
    void *frames[2];
    backtrace(frames, 2);
    caller_of_main = frames[1];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = step;
    sigaction(SIGTRAP, &action, NULL);
    action.sa_sigaction = toggle;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    stepping();
    word sum = through(p, n);
    stepping();
    printf("%lx, stepped: %d, lost: %ld\n", sum, steps > 500, lost);
    return 0;
}
