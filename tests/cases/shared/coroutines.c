//# flags: -O0 | -O2 -ftree-vectorize
//# link: -pie | -no-pie -s | -static
//# nodes: 2 3
/* Coroutines by makecontext and swapcontext that work on shared memory, on each node several. First they change places of their own accord, with contexts
 * that lie themselves in shared memory and that another node moves between two switches. Then a timer's handler takes them off the
 * processor wherever they are, in the middle of loops and of functions of the C library, while other nodes take their blocks. */
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

enum { COUNT = 4, STACK = 128 * 1024, WORDS = 300, ROUNDS = 20, SWITCHES = 80, NODES = 8 };
static unsigned nodes, next;
static unsigned char stacks[COUNT][STACK] __attribute__((aligned(64)));

/* Of each node and coroutine; a row begins and ends inside blocks. */
static double *rows;
static double *row(unsigned of, int who, int half) { return rows + ((of * COUNT + who) * 2 + half) * WORDS + 3; }
/* Single words of all nodes side by side. */
static volatile uint64_t *mixed;

static ucontext_t scheduler, *contexts[COUNT];
static int finished[COUNT], current = -1;

static void begin(int who, void (*body)(void)) {
    CHECK(getcontext(contexts[who]) == 0);
    contexts[who]->uc_stack.ss_sp = stacks[who];
    contexts[who]->uc_stack.ss_size = STACK;
    contexts[who]->uc_link = &scheduler;
    makecontext(contexts[who], body, 1, who);
    finished[who] = 0;
}

/* A round: from the next node's row of the round before, to one's own of this. */
static void cooperate(int who) {
    double scale = who + 1, expected = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        const double *from = row(next, who, (round - 1) & 1);
        double *to = row(node, who, round & 1), sum = 0;
        for (int i = 0; i < WORDS - 8; i++) {
            sum += from[i];
            to[i] = from[i] + scale;
        }
        CHECK(sum == expected * (WORDS - 8));
        expected += scale;
        CHECK(swapcontext(contexts[who], &scheduler) == 0);
        CHECK(scale == who + 1 && to == row(node, who, round & 1) && memcmp(to, to + 100, 100 * sizeof *to) == 0);
    }
    finished[who] = 1;
}

/* Contexts of one node, in two places that they use in turn; those of others begin in the same blocks. */
enum { SLOT = sizeof(ucontext_t) + 16 };
static ucontext_t *place(char *all, unsigned of, int who, int half) {
    return (ucontext_t *)(all + ((of * 2 + half) * COUNT + who) * SLOT);
}

/* Afterwards only this node has them. */
static void move(ucontext_t *to, ucontext_t *from) {
    volatile char *t = (volatile char *)to, *f = (volatile char *)from;
    for (unsigned i = 0; i < sizeof *to; i++) {
        t[i] = f[i];
        f[i] = 0x77;
    }
    /* The one pointer into itself. */
    to->uc_mcontext.fpregs = (fpregset_t)((char *)to->uc_mcontext.fpregs + ((char *)to - (char *)from));
}

static void cooperatively(char *all) {
    static ucontext_t private_context;
    for (int who = 0; who < COUNT; who++) {
        contexts[who] = who ? place(all, node, who, 1) : &private_context;
        begin(who, (void (*)(void))cooperate);
    }
    for (int round = 0; round <= ROUNDS; round++) {
        const int half = round & 1;
        bz_barrier();
        for (int who = 1; who < COUNT; who++) move(place(all, next, who, half), place(all, next, who, !half));
        bz_barrier();
        for (int who = 0; who < COUNT; who++) {
            if (who) contexts[who] = place(all, node, who, half);
            CHECK(swapcontext(&scheduler, contexts[who]) == 0);
        }
        for (int who = 0; who < COUNT; who++) CHECK(finished[who] == (round == ROUNDS));
    }
    bz_barrier();
}

static volatile sig_atomic_t stop, taken_off, inside;
static volatile uint64_t passes[COUNT];
static sigset_t alarms;

static void preempt(int number, siginfo_t *info, void *context) {
    const int who = current;
    if (number != SIGALRM || info->si_signo != number || !context) failures++;
    if (!inside) return;
    taken_off++;
    mixed[COUNT * NODES + node]++;
    if (swapcontext(contexts[who], &scheduler) || current != who) failures++;
}

/* Passes over rows and words of its own, and over others' which it only reads. */
static void compete(int who) {
    double *own = row(node, who, 0), *twin = row(node, who, 1), seen = 0;
    const double *others = row(next, who, 0);
    /* The context began with the signal blocked: were it let in before the stack was changed, the handler would save the scheduler's. */
    CHECK(sigprocmask(SIG_UNBLOCK, &alarms, 0) == 0);
    while (!stop) {
        for (int i = 0; i < WORDS - 8; i++) own[i] += 1;
        for (int i = 0; i < WORDS - 8; i++) seen += others[i];
        memcpy(twin, own, (WORDS - 8) * sizeof *own);
        mixed[who * NODES + node]++;
        if (memcmp(twin, own, (WORDS - 8) * sizeof *own)) failures++;
        passes[who]++;
    }
    finished[who] = seen >= 0;
    inside = 0;
}

static void go_on(int who) {
    current = who;
    inside = 1;
    CHECK(swapcontext(&scheduler, contexts[who]) == 0);
    inside = 0;
}

static void by_timer(void) {
    static ucontext_t own_contexts[COUNT];
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval once = {{0, 0}, {0, 300}};
    sigset_t old;
    unsigned switches = 0;
    action.sa_sigaction = preempt;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    CHECK(sigaction(SIGALRM, &action, 0) == 0 && sigprocmask(SIG_BLOCK, &alarms, &old) == 0);
    for (int who = 0; who < COUNT; who++) {
        contexts[who] = &own_contexts[who];
        begin(who, (void (*)(void))compete);
        memset(row(node, who, 0), 0, (WORDS - 8) * sizeof(double));
        mixed[who * NODES + node] = 0;
    }
    mixed[COUNT * NODES + node] = 0;
    bz_barrier();
    for (; switches < SWITCHES || passes[switches % COUNT] < 3; switches++) {
        once.it_value.tv_usec = 200 + switches * 61 % 300;
        CHECK(setitimer(ITIMER_REAL, &once, 0) == 0);
        go_on(switches % COUNT);
    }
    CHECK(taken_off == switches);
    stop = 1;
    for (int who = 0; who < COUNT; who++) {
        go_on(who);
        CHECK(finished[who]);
    }
    CHECK(sigprocmask(SIG_SETMASK, &old, 0) == 0);
    bz_barrier();
    uint64_t all = 0;
    for (int who = 0; who < COUNT; who++) {
        const double *own = row(node, who, 0);
        for (int i = 0; i < WORDS - 8; i++) CHECK(own[i] == (double)passes[who]);
        CHECK(mixed[who * NODES + node] == passes[who]);
        all += passes[who];
    }
    CHECK(mixed[COUNT * NODES + node] == switches);
    mixed[(COUNT + 1) * NODES + node] = all;
    bz_barrier();
    double sum = 0;
    for (int who = 0; who < COUNT; who++) sum += row(next, who, 1)[WORDS - 9];
    CHECK(sum == (double)mixed[(COUNT + 1) * NODES + next]);
}

int main(void) {
    node = bz_node();
    nodes = bz_nodes();
    next = (node + 1) % nodes;
    if (node == 0) {
        bz_publish(0, bz_alloc((nodes * COUNT * 2 + 1) * WORDS * sizeof *rows));
        bz_publish(1, bz_alloc(nodes * 2 * COUNT * SLOT));
        bz_publish(2, bz_alloc((COUNT + 2) * NODES * sizeof *mixed));
    }
    rows = bz_lookup(0);
    mixed = bz_lookup(2);
    cooperatively(bz_lookup(1));
    by_timer();
    return failed();
}
