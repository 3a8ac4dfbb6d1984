/* A program of several nodes that goes wrong in the way that its first argument says. The second argument marks its processes. */
#define _GNU_SOURCE
#include <blizzard.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ON_SHARED_STACK __attribute__((noinline, used)) static
static ucontext_t back, other;
static volatile uint64_t *stack;

/* Each takes a stack in shared memory, in one of the ways that there are. */
ON_SHARED_STACK void moved_stack(void) {
    __asm__ volatile("mov %%rsp, %%r12\n\tmov %0, %%rsp\n\tpush %%rax\n\tmov %%r12, %%rsp" ::"r"(stack + 512) : "r12", "memory");
}
ON_SHARED_STACK void exchanged_stack(void) {
    volatile uint64_t *top = stack + 512;
    __asm__ volatile("xchg %0, %%rsp\n\tpush %%rax\n\txchg %0, %%rsp" : "+r"(top)::"memory");
}
ON_SHARED_STACK void popped_stack(void) {
    __asm__ volatile("mov %%rsp, %%r12\n\tsub $136, %%rsp\n\tpush %0\n\tpop %%rsp\n\tpush %%rax\n\tmov %%r12, %%rsp" ::"r"(stack + 512) : "r12", "memory");
}
ON_SHARED_STACK void added_stack(void) {
    __asm__ volatile("mov %%rsp, %%r12\n\tmov %0, %%rax\n\tsub %%rsp, %%rax\n\tadd %%rax, %%rsp\n\tpush %%rax\n\tmov %%r12, %%rsp" ::"r"(stack + 512)
                     : "r12", "rax", "memory", "cc");
}
ON_SHARED_STACK void left_stack(void) {
    __asm__ volatile("mov %%rsp, %%r12\n\tmov %%rbp, %%r13\n\tmov %0, %%rbp\n\tleave\n\tpush %%rax\n\tmov %%r12, %%rsp\n\tmov %%r13, %%rbp" ::"r"(stack + 512)
                     : "r12", "r13", "memory");
}
static void nothing(void) {}
ON_SHARED_STACK void context_stack(void) {
    getcontext(&other);
    other.uc_stack.ss_sp = (void *)stack;
    other.uc_stack.ss_size = 4096;
    other.uc_link = &back;
    makecontext(&other, nothing, 0);
    swapcontext(&back, &other);
}
ON_SHARED_STACK void jumped_stack(void) {
    jmp_buf to;
    if (setjmp(to))
        return;
    uint64_t secret; /* glibc keeps rsp mangled; the exclusive-or with the secret comes first, then the rotation. */
    __asm__("mov %%fs:0x30, %0" : "=r"(secret));
    uint64_t mangled = (uint64_t)(stack + 256) ^ secret;
    ((uint64_t *)to)[6] = mangled << 17 | mangled >> 47;
    longjmp(to, 1);
}
ON_SHARED_STACK void signal_stack(void) {
    stack_t own = {.ss_sp = (void *)stack, .ss_size = 8192};
    sigaltstack(&own, 0);
}
static int child(void *argument) {
    (void)argument;
    _exit(0);
}
ON_SHARED_STACK void set_context_stack(void) {
    getcontext(&other);
    other.uc_stack.ss_sp = (void *)stack;
    other.uc_stack.ss_size = 4096;
    other.uc_link = 0;
    makecontext(&other, nothing, 0);
    setcontext(&other);
}
ON_SHARED_STACK void clone3_stack(void) {
    struct { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; } given = {.exit_signal = SIGCHLD, .stack = (uint64_t)stack, .stack_size = 4096};
    if (syscall(435, &given, sizeof given) == 0)
        _exit(0);
}
/* The base of %gs or %fs in, or behind, shared memory. */
static void set_gs(void) { syscall(SYS_arch_prctl, 0x1001, 0x1000); }
static void set_gs_shared(void) { syscall(SYS_arch_prctl, 0x1001, stack); }
static void set_fs_shared(void) { syscall(SYS_arch_prctl, 0x1002, stack); }
ON_SHARED_STACK void cloned_stack(void) { clone(child, (void *)(stack + 512), SIGCHLD, 0); }

static const struct {
    const char *how;
    void (*run)(void);
} stacks[] = {{"moved-stack", moved_stack},   {"exchanged-stack", exchanged_stack}, {"popped-stack", popped_stack}, {"added-stack", added_stack},
              {"left-stack", left_stack},     {"context-stack", context_stack},     {"jumped-stack", jumped_stack}, {"signal-stack", signal_stack},
              {"cloned-stack", cloned_stack}, {"set-context-stack", set_context_stack}, {"clone3-stack", clone3_stack},
              {"set-gs", set_gs},             {"set-gs-shared", set_gs_shared},     {"set-fs-shared", set_fs_shared}};

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    unsigned me = bz_node(), nodes = bz_nodes(), last = nodes - 1;
    volatile uint64_t *shared = me == last ? bz_alloc(8192) : 0;
    if (me == last)
        bz_publish(0, (void *)shared);
    shared = bz_lookup(0);
    if (me == last)
        for (int i = 0; i < 512; i++)
            shared[i] = i;
    if (!strcmp(how, "daemon")) {
        /* A process that has left its parent, its session and its process group behind. */
        int ready[2];
        char byte;
        if (pipe(ready))
            return 2;
        if (fork() == 0) {
            setsid();
            if (fork() == 0) {
                if (write(ready[1], "", 1) != 1)
                    _exit(2);
                for (;;)
                    pause();
            }
            _exit(0);
        }
        if (read(ready[0], &byte, 1) != 1)
            return 2;
    }
    bz_barrier();
    if (me == 0) {
        printf("started %u\n", nodes);
        fflush(stdout);
    }
    bz_barrier();
    if (!strcmp(how, "exit-early")) {
        /* The owner of the data ends first: the others still get it. */
        if (me == last)
            return 0;
        uint64_t sum = 0;
        for (int i = 0; i < 512; i++)
            sum += shared[i];
        for (volatile int wait = 0; wait < 3000000; wait++) {
        }
        for (int i = 0; i < 512; i++)
            sum += shared[i];
        if (me == 0)
            printf("sum %llu\n", (unsigned long long)sum);
        return 0;
    }
    if (!strcmp(how, "stop")) {
        /* Stops itself; somebody else may let it go on. */
        if (me == last)
            raise(SIGSTOP);
        uint64_t sum = 0;
        for (int i = 0; i < 512; i++)
            sum += shared[i];
        bz_barrier();
        if (me == 0)
            printf("sum %llu\n", (unsigned long long)sum);
        return 0;
    }
    stack = shared;
    for (unsigned k = 0; k < sizeof stacks / sizeof *stacks; k++)
        if (!strcmp(how, stacks[k].how) && me == last)
            stacks[k].run();
    if (!strcmp(how, "exit-status") && me == last)
        return 7;
    if (!strcmp(how, "leave") && me == last)
        _exit(0);
    if (!strcmp(how, "segfault") && me == last)
        *(volatile int *)(uintptr_t)64 = 1;
    if (!strcmp(how, "abort") && me == last)
        abort();
    if (!strcmp(how, "kill") && me == last)
        raise(SIGKILL);
    if (!strcmp(how, "unallocated") && me == last)
        printf("%d\n", *((volatile int *)shared + (1 << 26)));
    if (!strcmp(how, "double-free") && me == last) {
        void *p = bz_alloc(64);
        bz_free(p);
        bz_free(p);
    }
    if (!strcmp(how, "free-nonsense") && me == last)
        bz_free((char *)shared + 8);
    if (!strcmp(how, "unlock") && me == last)
        bz_unlock(bz_lock_new());
    if (!strcmp(how, "block-size") && me == last)
        bz_alloc_with(&(bz_attr_t){.block_bytes = 96}, 100);
    if (!strcmp(how, "block-too-large") && me == last)
        bz_alloc_with(&(bz_attr_t){.block_bytes = 8192}, 100);
    if (!strcmp(how, "homes") && me == last)
        bz_alloc_with(&(bz_attr_t){.homes = 5}, 100);
    if (!strcmp(how, "home-node") && me == last)
        bz_alloc_with(&(bz_attr_t){.homes = BZ_HOMES_NODE, .node = nodes}, 100);
    if (!strcmp(how, "slot") && me == last)
        bz_publish(BZ_SLOTS, 0);
    if (!strcmp(how, "reduce-null") && me == last)
        bz_reduce(BZ_REDUCE_SUM_U64, 0, 3);
    if (!strcmp(how, "broadcast-null") && me == last)
        bz_broadcast(last, 0, 8);
    if (!strcmp(how, "write-from-null") && me == last)
        bz_remote_write(0, &argc, 0, sizeof argc);
    if (!strcmp(how, "write-to-null") && me == last)
        bz_remote_write(0, 0, &argc, sizeof argc);
    if (!strcmp(how, "dump")) {
        /* What a core dump would contain, by the kernel's own word: `dd` keeps a mapping out of it. A node that has not used the memory knows
         * nothing of it. */
        (void)shared[9];
        FILE *maps = fopen("/proc/self/smaps", "r");
        char line[4096];
        unsigned long start = 0, end = 0, dumped = 0, at = (unsigned long)shared;
        int shows_shared = 0;
        while (maps && fgets(line, sizeof line, maps)) {
            unsigned long from, to;
            if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
                start = from, end = to;
            else if (!strncmp(line, "VmFlags:", 8) && !strstr(line, " dd")) {
                dumped += end - start;
                shows_shared |= start <= at && at < end;
            }
        }
        printf("%s, shared memory %s\n", dumped < 1ul << 30 ? "small" : "large", shows_shared ? "shown" : "missing");
        return 0;
    }
    /* What the only thread waits for, nobody else does. */
    if (!strcmp(how, "lock-twice") && me == last) {
        bz_lock_t *lock = bz_lock_new();
        bz_lock(lock);
        bz_lock(lock);
    }
    if (!strcmp(how, "event-never-set"))
        bz_event_wait(bz_event_new());
    if (!strcmp(how, "slot-never-published"))
        bz_lookup(9);
    if (!strcmp(how, "compute") || !strcmp(how, "daemon"))
        for (;;)
            shared[me * 8]++;
    if (!strcmp(how, "traffic")) {
        /* Everything at once, so many times: reads everywhere, increments under a lock, barriers. The sum is known. */
        unsigned long rounds = strtoul(argv[3], 0, 0), random = me + 1;
        bz_lock_t *lock = me == 0 ? bz_lock_new() : 0;
        if (me == 0)
            bz_publish(1, lock);
        lock = bz_lookup(1);
        uint64_t sum = 0;
        for (unsigned long i = 0; i < rounds; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            sum += shared[random >> 33 & 511];
            if (i % 8 == 0) {
                bz_lock(lock);
                shared[512 + (random >> 42 & 511)]++;
                bz_unlock(lock);
            }
            if (i % 4096 == 0)
                bz_barrier();
        }
        bz_barrier();
        sum = 0;
        for (int i = 0; i < 512; i++)
            sum += shared[512 + i];
        if (me == 0)
            printf("sum %llu\n", (unsigned long long)sum);
        return 0;
    }
    if (!strcmp(how, "too-much")) {
        size_t much = (size_t)1 << 50, half = (size_t)1 << 29;
        void *all[] = {bz_alloc(much), bz_alloc(-1), bz_alloc_on(last, much), bz_alloc_with(&(bz_attr_t){.block_bytes = 4096}, much)};
        for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
            printf("%s\n", all[i] ? "got it" : "NULL");
        /* One node asks for what another one keeps account of. */
        if (me == last)
            for (int i = 0; i < 3; i++)
                printf("%s\n", bz_alloc(half / 2) ? "got it" : "NULL");
        return 0;
    }
    unsigned gib;
    if (sscanf(how, "gib-%u", &gib) == 1) {
        printf("%s\n", bz_alloc((size_t)gib << 30) ? "got it" : "NULL");
        return 0;
    }
    /* The others wait for ever, or compute. */
    if (me == 1)
        for (volatile unsigned i = 0;; i++) {}
    bz_barrier();
    if (me == 0)
        puts("not reached");
    return 0;
}
