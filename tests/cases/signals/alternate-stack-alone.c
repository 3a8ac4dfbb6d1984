//# flags: -O2
//# link: -pie | -static
//# nodes: 1
/* With one node the first thread has an alternate stack of the runtime's, for the report of a stack that is full. The program sees none, in no thread, handlers of faults run where they would,
 * and a stack that the program sets is its own. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { NEAR = 1 << 16, BYTES = 1 << 16 };
static volatile int runs, on_the_stack, told_none, told_on, on_own;
static volatile char *page;
static char own[BYTES], of_thread[BYTES];
static sigjmp_buf back;

static void handler(int number, siginfo_t *info, void *at) {
    char here;
    char *volatile place = &here;
    ucontext_t *context = at;
    stack_t now;
    (void)number;
    const uint64_t rsp = (uint64_t)context->uc_mcontext.gregs[REG_RSP];
    runs++;
    on_the_stack += (uint64_t)place < rsp && rsp - (uint64_t)place < NEAR;
    on_own += place >= own && place < own + BYTES;
    told_none += context->uc_stack.ss_sp == NULL && context->uc_stack.ss_size == 0;
    told_on += sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_ONSTACK;
    if (number == SIGSEGV && info->si_code > 0) mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
}

static void leave(int number) {
    char here;
    char *volatile place = &here;
    (void)number;
    on_own += place >= own && place < own + BYTES;
    siglongjmp(back, 1);
}

static int says_none(void) {
    stack_t now;
    memset(&now, 1, sizeof now);
    return sigaltstack(NULL, &now) == 0 && now.ss_sp == NULL && now.ss_flags == SS_DISABLE && now.ss_size == 0;
}

static void faults(int flags) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags}, default_ = {.sa_handler = SIG_DFL};
    runs = on_the_stack = on_own = told_none = told_on = 0;
    for (int i = 0; i < 4; i++) {
        sigaction(signals[i], &action, NULL);
        raise(signals[i]);
    }
    mprotect((void *)page, 4096, PROT_READ);
    page[5] = 1;
    for (int i = 0; i < 4; i++) sigaction(signals[i], &default_, NULL);
    printf("%d handlers, on the stack %d, none told %d, on another %d, on the own %d; none %d\n", runs, on_the_stack, told_none, told_on, on_own,
           says_none());
}

static void *thread(void *argument) {
    stack_t wanted = {.ss_sp = of_thread, .ss_size = BYTES}, none = {.ss_flags = SS_DISABLE}, old;
    const int first = says_none();
    sigaltstack(&wanted, &old);
    const int had_none = old.ss_flags == SS_DISABLE;
    sigaltstack(&none, &old);
    printf("thread: %d %d %d %d\n", first, had_none, old.ss_sp == (void *)of_thread, says_none());
    faults(SA_ONSTACK);
    return argument;
}

__attribute__((noinline)) static int over(int n) {
    volatile char room[1000];
    room[0] = (char)n;
    return over(n + 1) + room[0];
}

static void overflow(int flags) {
    struct sigaction action = {.sa_handler = leave, .sa_flags = flags}, default_ = {.sa_handler = SIG_DFL};
    on_own = 0;
    sigaction(SIGSEGV, &action, NULL);
    for (int n = 0; n < 3; n++) {
        if (sigsetjmp(back, 1) == 0) over(1);
    }
    sigaction(SIGSEGV, &default_, NULL);
    printf("left %d\n", on_own);
}

/* Which signal ends a child that does this. */
static int dies(void (*how)(int), int flags) {
    const pid_t pid = fork();
    if (pid == 0) {
        how(flags);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}
static void only_over(int flags) { over(flags); }

int main(void) {
    struct rlimit limit;
    pthread_t other;
    setvbuf(stdout, NULL, _IONBF, 0);
    getrlimit(RLIMIT_STACK, &limit);
    if (limit.rlim_cur > 1 << 20) limit.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_STACK, &limit);
    getrlimit(RLIMIT_CORE, &limit);
    limit.rlim_cur = 0;
    setrlimit(RLIMIT_CORE, &limit);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("none %d\n", says_none());
    faults(0);
    faults(SA_ONSTACK);
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    faults(SA_ONSTACK);
    printf("%d %d %d\n", dies(only_over, 1), dies(overflow, 0), dies(overflow, SA_ONSTACK));
    stack_t wanted = {.ss_sp = own, .ss_size = BYTES}, none = {.ss_flags = SS_DISABLE}, old;
    printf("set %d", sigaltstack(&wanted, &old));
    printf(" %d %d\n", old.ss_flags == SS_DISABLE, old.ss_sp == NULL);
    overflow(SA_ONSTACK);
    runs = on_own = 0;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    printf("%d %d\n", runs, on_own);
    printf("%d", dies(only_over, 1));
    printf(" %d\n", dies(overflow, 0));
    sigaltstack(&none, &old);
    printf("%d %d\n", old.ss_sp == (void *)own, says_none());
    runs = on_the_stack = 0;
    raise(SIGUSR1);
    printf("%d %d\n", runs, on_the_stack);
    faults(SA_ONSTACK);
    return 0;
}
