//# flags: -O0 | -O2 | -O3
//# link: -pie | -no-pie -s
/* Handlers that touch memory while the program computes: timer signals in loops, faults that are left by siglongjmp, a fault
 * that the handler repairs, signals on an alternate stack, a division by zero. */
#define _GNU_SOURCE
#include "arena.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

static volatile sig_atomic_t ticks;
static unsigned char scratch[4096];
static sigjmp_buf back;
static volatile unsigned char *volatile page;
static volatile int repaired;

static void tick(int number) {
    ticks++;
    for (int i = 0; i < 100; i++)
        scratch[(ticks * 37 + i * 41) & 4095] ^= (unsigned char)(i + number);
    uint64_t wide[8];
    memcpy(wide, scratch + (ticks & 63), sizeof wide);
    __asm__ volatile("" : : "r"(wide) : "memory", "xmm0", "xmm7", "cc");
}
static void fault(int number, siginfo_t *info, void *context) {
    if ((volatile unsigned char *)info->si_addr == page + 5 && !repaired) {
        repaired = 1;
        mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
        return;
    }
    siglongjmp(back, number);
}

/* The flags and registers of every iteration depend on the ones before; a signal in between must not be noticed. */
__attribute__((noinline)) static uint64_t compute(uint64_t *data, int n, int rounds) {
    uint64_t carry = 0;
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < n; i++) {
            unsigned __int128 product = (unsigned __int128)data[i] * 6364136223846793005u + carry;
            data[i] = (uint64_t)product;
            carry = (uint64_t)(product >> 64) + (data[i] < carry);
        }
    return carry;
}

int main(void) {
    static uint64_t data[1024];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = tick;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, 0);
    uint64_t carry = 0;
    int passes = 0;
    do {
        for (int i = 0; i < 1024; i++)
            data[i] = (uint64_t)i + 1;
        uint64_t now = compute(data, 1024, 200);
        EXPECT(passes == 0 || now == carry, "pass %d", passes);
        carry = now;
    } while (++passes < 20 || ticks < 20);
    setitimer(ITIMER_REAL, &never, 0);
    mix(carry);
    mix_bytes(data, sizeof data);
    report("computation under signals");

    static unsigned char stack[65536];
    stack_t alternate = {stack, 0, sizeof stack};
    sigaltstack(&alternate, 0);
    action.sa_sigaction = fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGBUS, &action, 0);
    sigaction(SIGFPE, &action, 0);
    page = (unsigned char *)mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[5] = 17;
    printf("repaired %d, read %d\n", repaired, page[5]);
    mprotect((void *)page, 4096, PROT_READ);
    int caught = sigsetjmp(back, 1);
    if (caught == 0)
        page[6] = 1;
    printf("store to read-only memory: %d\n", caught == SIGSEGV);
    caught = sigsetjmp(back, 1);
    if (caught == 0)
        mix(*(volatile unsigned char *)(uintptr_t)8);
    printf("load from nowhere: %d\n", caught == SIGSEGV);
    volatile int zero = 0;
    caught = sigsetjmp(back, 1);
    if (caught == 0)
        mix((uint64_t)(1000 / zero));
    printf("division: %d\n", caught == SIGFPE);
    caught = sigsetjmp(back, 1);
    if (caught == 0)
        ((void (*)(void))(uintptr_t)16)();
    printf("jump to nowhere: %d\n", caught == SIGSEGV);
    return case_result();
}
