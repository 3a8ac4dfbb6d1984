//# flags: -O0 | -O2
//# link: -pie | -no-pie -s | -static
//# nodes: 2 3
/* Handlers on an alternate stack that use shared memory of which other nodes have the only copy: for a timer while the program works on the same
 * blocks, for one signal on top of another, for a page that the handler makes accessible, for a stack that has run over its
 * limit, left by siglongjmp. Between them the alternate stack is replaced and taken away. */
#define _GNU_SOURCE
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { STACK = 128 * 1024, NODES = 8, WORDS = 512, BYTES = 4000, OTHERS = 2000 };
static unsigned nodes;
static volatile uint64_t *words; /* each node's alternate */
static char *text;               /* one node writes it, the others read it in handlers */
static char stacks[2][STACK] __attribute__((aligned(4096)));
static char *expected_stack;
static sigjmp_buf back;
static volatile sig_atomic_t ticks, nested, faults, overflows, depth;
static volatile char *page;
static volatile char wanted;

/* Whether the caller runs on the stack that it should, and the kernel says so. */
static int on_its_stack(void) {
    char here;
    stack_t now;
    const int inside = &here >= expected_stack && &here < expected_stack + STACK;
    if (sigaltstack(0, &now)) return 0;
    if (!expected_stack) return now.ss_flags == SS_DISABLE;
    return inside && now.ss_flags == SS_ONSTACK && now.ss_sp == expected_stack;
}

/* Adds the bytes of the text up by way of a copy on the stack: misses of the library, and a deep frame. */
__attribute__((noinline)) static unsigned long sum_of_text(void) {
    char copy[BYTES];
    unsigned long sum = 0;
    memcpy(copy, text, BYTES);
    for (int i = 0; i < BYTES; i++) sum += (unsigned char)copy[i];
    return sum;
}

static void tick(int number, siginfo_t *info, void *context) {
    if (!on_its_stack() || info->si_signo != number || !context) failures++;
    ticks++;
    words[WORDS * NODES + node]++;
    /* All bytes are the same but while they are written. */
    words[WORDS * NODES + NODES + node] = sum_of_text();
    if (depth++ == 0 && ticks % 3 == 0) {
        if (raise(SIGUSR1)) failures++;
    }
    depth--;
}

static void on_top(int number, siginfo_t *info, void *context) {
    if (!on_its_stack() || depth != 1 || info->si_signo != number || !context) failures++;
    words[WORDS * NODES + node]++;
    nested++;
}

static void fault(int number, siginfo_t *info, void *context) {
    if (!on_its_stack() || number != SIGSEGV || !context) failures++;
    const unsigned long sum = sum_of_text();
    if (sum != (unsigned long)wanted * BYTES) failures++;
    words[WORDS * NODES + node]++;
    if ((char *)info->si_addr == page + 5) {
        faults++;
        if (mprotect((void *)page, 4096, PROT_READ | PROT_WRITE)) failures++;
        return;
    }
    overflows++;
    siglongjmp(back, 1);
}

static void use_stack(char *stack) {
    stack_t wanted = {.ss_sp = stack, .ss_size = STACK, .ss_flags = stack ? 0 : SS_DISABLE}, old;
    CHECK(sigaltstack(&wanted, &old) == 0);
    if (expected_stack) CHECK(old.ss_sp == expected_stack && old.ss_flags == 0 && old.ss_size == STACK);
    expected_stack = stack;
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    action.sa_sigaction = handler;
    CHECK(sigaction(signal, &action, 0) == 0);
}

/* One signal: were there always a next one, a node whose handler misses for longer would do nothing else. */
static void timer_us(long us) {
    struct itimerval t = {{0, 0}, {0, us}};
    CHECK(setitimer(ITIMER_REAL, &t, 0) == 0);
}

__attribute__((noinline)) static unsigned long endless(unsigned long n) {
    volatile char frame[OTHERS];
    frame[n % OTHERS] = (char)n;
    const unsigned long below = endless(n + 1);
    return below + (unsigned char)frame[n * 7 % OTHERS];
}

/* Each node alone writes its words; they lie beside everybody else's. */
static void work(int more) {
    const sig_atomic_t until = ticks + more;
    sig_atomic_t seen = ticks - 1;
    unsigned long x = node + 1;
    unsigned before = 0, after = 0, done = 0;
    for (unsigned w = 0; w < WORDS; w++) before += (unsigned)words[w * NODES + node];
    for (; done < 3000 || ticks < until; done++) {
        if (seen != ticks && ticks < until) {
            seen = ticks;
            timer_us(200 + 50 * node);
        }
        x = x * 6364136223846793005ul + 1442695040888963407ul;
        words[(x >> 40) % WORDS * NODES + node]++;
        if (done % 200 == 0 && node == 0) memset(text, (int)(done / 200) & 63, BYTES);
    }
    for (unsigned w = 0; w < WORDS; w++) after += (unsigned)words[w * NODES + node];
    CHECK(after - before == done);
}

int main(void) {
    node = bz_node();
    nodes = bz_nodes();
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    if (limit.rlim_cur > 4 << 20) limit.rlim_cur = 4 << 20;
    setrlimit(RLIMIT_STACK, &limit);
    if (node == 0) {
        bz_publish(0, bz_alloc((WORDS + 2) * NODES * sizeof *words));
        bz_publish(1, bz_alloc(BYTES + 64));
    }
    words = bz_lookup(0);
    text = (char *)bz_lookup(1) + 17;
    page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    handle(SIGALRM, tick);
    handle(SIGUSR1, on_top);
    handle(SIGSEGV, fault);
    bz_barrier();
    for (int i = 0; i < 3; i++) {
        use_stack(i < 2 ? stacks[i] : 0);
        work(9);
        bz_barrier();
    }
    for (unsigned i = 0; i < 4 * nodes; i++) {
        use_stack(stacks[i % 2]);
        wanted = (char)(i + 1);
        if (node == i % nodes) memset(text, wanted, BYTES);
        bz_barrier();
        if (i % 2) {
            CHECK(mprotect((void *)page, 4096, PROT_READ) == 0);
            page[5] = wanted;
            CHECK(page[5] == wanted);
        } else {
            if (sigsetjmp(back, 1) == 0) CHECK(endless(node) == 0);
            stack_t now;
            CHECK(sigaltstack(0, &now) == 0 && now.ss_flags == 0 && now.ss_sp == expected_stack);
        }
        bz_barrier();
    }
    CHECK(faults == 2 * nodes && overflows == 2 * nodes && ticks == 27 && nested > 0);
    words[WORDS * NODES + NODES + node] = ticks + nested + faults + overflows;
    bz_barrier();
    const unsigned next = (node + 1) % nodes;
    CHECK(words[WORDS * NODES + next] == words[WORDS * NODES + NODES + next]);
    return failed();
}
