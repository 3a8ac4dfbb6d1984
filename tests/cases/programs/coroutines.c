//# flags: -O0 | -O2
//# link: -pie | -no-pie -s | -static
/* Coroutines by makecontext and swapcontext on stacks of their own, nested, ended by uc_link, left by setcontext from a handler's context
 * and carrying live vector and floating-point state across switches. */
#include "arena.h"
#include <signal.h>
#include <ucontext.h>

enum { COUNT = 4, STACK = 64 * 1024 };
static ucontext_t scheduler, contexts[COUNT];
static int done[COUNT];
static uint64_t produced[COUNT];

static void yield(int me, uint64_t value) {
    produced[me] = value;
    swapcontext(&contexts[me], &scheduler);
}

static void body(int me, int rounds) {
    double scale = me + 0.5;
    uint64_t state = (uint64_t)me * 77 + 1;
    for (int i = 0; i < rounds; i++) {
        uint64_t local[16];
        for (int k = 0; k < 16; k++)
            local[k] = state * (uint64_t)(k + 1) + (uint64_t)(scale * i);
        yield(me, local[state & 15]);
        state = state * 6364136223846793005u + local[(state >> 7) & 15];
        scale *= 1.25;
    }
    done[me] = 1;
}

static ucontext_t after;
static volatile int handled;
static void leave(int number, siginfo_t *info, void *context) {
    (void)info, (void)context;
    handled += number == SIGUSR1;
    if (handled == 3)
        setcontext(&after);
}

int main(void) {
    static unsigned char stacks[COUNT][STACK];
    for (int i = 0; i < COUNT; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = STACK;
        contexts[i].uc_link = &scheduler;
        makecontext(&contexts[i], (void (*)(void))body, 2, i, 20 + i * 7);
    }
    for (int left = COUNT; left;)
        for (int i = 0; i < COUNT; i++)
            if (!done[i]) {
                swapcontext(&scheduler, &contexts[i]);
                mix(produced[i]);
                left -= done[i];
            }
    report("coroutines");
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = leave;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGUSR1, &action, 0);
    volatile int times = 0;
    getcontext(&after);
    if (handled < 3) {
        while (handled < 3 && times < 10) {
            times++;
            raise(SIGUSR1);
        }
        puts("not left");
    }
    printf("left after %d\n", times);
    return 0;
}
