//# flags: -O0 | -O1 | -O2 | -O3 | -Os
//# link: -pie | -no-pie | -pie -s
/* setjmp and longjmp over several frames, out of loops, out of a signal handler; sigsetjmp with and without the mask;
 * __builtin_setjmp. */
#include "arena.h"
#include <setjmp.h>
#include <signal.h>

static jmp_buf outer, inner;
static sigjmp_buf from_signal;
static void *builtin_buffer[5];

__attribute__((noinline)) static int descend(int n, int target) {
    volatile int here = n;
    if (n == target)
        longjmp(outer, n + 1);
    return descend(n + 1, target) + here;
}

static void handler(int number) { siglongjmp(from_signal, number); }

__attribute__((noinline)) static void throw_builtin(void) { __builtin_longjmp(builtin_buffer, 1); }

__attribute__((noinline)) static int catch_builtin(void) {
    volatile int count = 3;
    if (__builtin_setjmp(builtin_buffer) == 0)
        throw_builtin();
    return ++count;
}

int main(void) {
    for (int i = 0; i < 20; i++) {
        volatile int kept = i * 3;
        int value = setjmp(outer);
        if (value == 0)
            descend(0, i);
        printf("level %d kept %d\n", value, kept);
    }
    volatile int rounds = 0;
    if (setjmp(inner) < 5) {
        rounds = rounds + 1;
        longjmp(inner, rounds);
    }
    printf("%d rounds\n", rounds);
    printf("builtin %d\n", catch_builtin());
    signal(SIGUSR1, handler);
    for (int save = 0; save < 2; save++) {
        int number = sigsetjmp(from_signal, save);
        if (number == 0)
            raise(SIGUSR1);
        sigset_t mask;
        sigprocmask(SIG_SETMASK, 0, &mask);
        printf("signal %d, blocked %d\n", number, sigismember(&mask, SIGUSR1));
        sigemptyset(&mask);
        sigprocmask(SIG_SETMASK, &mask, 0);
    }
    return 0;
}
