//# flags: -O0 | -O2
//# link: -pie | -static
//# nodes: 2 3
/* Instructions that use shared memory and raise a signal for another reason: a handler puts that right, meanwhile another node writes what the instruction
 * is about to read, and the handler returns to the instruction. It must read what was written: the check that it passed before counts no more. A string
 * instruction that faults half-way shows its handler the registers that it has by then. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { PAGE = 4096, ROUNDS = 40 };
enum kind { PUSH, DIVIDE, MULTIPLY, LOAD, STORE, MOVE, COMPARE, KINDS };
static volatile uint64_t *shared; /* the value twice, ask, done: a block each */
static volatile uint64_t round_now, handled, odd;
static volatile enum kind kind_now;
/* Its product with any of the values, which are small numbers, is inexact. */
static const double factor = 0x1.123456789abcdp+900;
static char *guard; /* a page without access, between two with */

/* What the other node writes in a round. */
static uint64_t written(uint64_t round) { return round * 1000 + 7; }

/* Lets the other node write. */
static void exchange(void) {
    if (bz_nodes() == 1) {
        shared[0] = shared[1] = written(round_now);
        return;
    }
    shared[8] = round_now;
    while (shared[16] != round_now) continue;
}

static void handle(int number, siginfo_t *information, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number, (void)information;
    handled++;
    if (kind_now == MOVE) {
        const unsigned char *at = (const unsigned char *)registers[REG_RIP];
        const uint32_t *vector = ((ucontext_t *)context)->uc_mcontext.fpregs->_xmm[7].element;
        odd += at[0] != 0xf3 || at[1] != 0x48 || at[2] != 0xa5;
        odd += registers[REG_RCX] != 1 || registers[REG_RDI] != (greg_t)(uintptr_t)guard;
        odd += registers[REG_RSI] != (greg_t)(uintptr_t)(shared + 1) || registers[REG_R12] != 0x1234567 || registers[REG_RAX] != 77;
        odd += vector[0] != 0x89abcdef || vector[1] || vector[2] || vector[3];
    }
    switch (kind_now) {
    case PUSH: case MOVE: case COMPARE: mprotect(guard, PAGE, PROT_READ | PROT_WRITE); break;
    case DIVIDE: registers[REG_RDX] = 0; break;
    case MULTIPLY: ((ucontext_t *)context)->uc_mcontext.fpregs->mxcsr |= 0x1f80; break;
    case LOAD: case STORE: registers[REG_RDI] = (greg_t)(uintptr_t)shared; break;
    default: break;
    }
    exchange();
}

/* Runs an instruction on the shared value that raises a signal; what it has read. */
__attribute__((noinline)) static uint64_t run(enum kind kind) {
    uint64_t result = 0;
    mprotect(guard, PAGE, PROT_NONE);
    kind_now = kind;
    result = shared[0]; /* this node has a copy */
    switch (kind) {
    case PUSH:
        __asm__ volatile("mov %%rsp, %%r12\n mov %2, %%rsp\n push (%1)\n pop %0\n mov %%r12, %%rsp"
                         : "=&a"(result) : "D"(shared), "S"(guard + PAGE) : "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "cc", "memory");
        break;
    case DIVIDE:
        __asm__ volatile("mov $-1, %%rdx\n mov $-1, %%rax\n divq (%1)"
                         : "=&a"(result) : "D"(shared) : "rcx", "rdx", "r8", "r9", "r10", "r11", "cc", "memory");
        result = UINT64_MAX / result; /* exact enough: the values are small */
        break;
    case MULTIPLY: {
        const uint32_t raises = 0x1f80 & ~0x1000u, masks = 0x1f80;
        double product = 0;
        __asm__ volatile("movsd %2, %%xmm0\n ldmxcsr %3\n mulsd (%1), %%xmm0\n ldmxcsr %4\n movsd %%xmm0, %0"
                         : "=m"(product) : "D"(shared), "m"(factor), "m"(raises), "m"(masks)
                         : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "xmm0", "cc", "memory");
        memcpy(&result, &product, sizeof result);
        break;
    }
    case LOAD:
        __asm__ volatile("mov (%%rdi), %0" : "=&a"(result), "+D"(guard) : : "rcx", "rdx", "r8", "r9", "r10", "r11", "cc", "memory");
        break;
    case STORE:
        __asm__ volatile("xor %%eax, %%eax\n lock xadd %%rax, (%%rdi)" : "=&a"(result), "+D"(guard) : : "rcx", "rdx", "r8", "r9", "r10", "r11", "cc", "memory");
        break;
    case MOVE: {
        /* The first of the two words is moved, for the second there is no page. */
        char *to = guard - 8;
        volatile uint64_t *from = shared;
        uint64_t count = 2;
        __asm__ volatile("mov $0x1234567, %%r12\n mov $0x89abcdef, %%eax\n movd %%eax, %%xmm7\n mov $77, %%eax\n rep movsq\n sub $0x1234567, %%r12\n add %%r12, %%rcx"
                         : "+D"(to), "+S"(from), "+c"(count) : : "rax", "rdx", "r8", "r9", "r10", "r11", "r12", "xmm7", "cc", "memory");
        odd += count != 0 || to != guard + 8 || from != shared + 2;
        memcpy(&result, guard, sizeof result);
        break;
    }
    case COMPARE: {
        char *with = guard;
        volatile uint64_t *from = shared;
        uint64_t count = 8, got = 0;
        __asm__ volatile("repe cmpsb\n mov %%rcx, %3" : "+D"(with), "+S"(from), "+c"(count), "=r"(got) : : "rax", "rdx", "r8", "r9", "r10", "r11", "cc", "memory");
        result = got; /* looked at by the caller */
        break;
    }
    default: break;
    }
    return result;
}

int main(void) {
    static char stack[64 * 1024];
    const unsigned node = bz_node();
    uint64_t wrong = 0;
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_flags = SA_ONSTACK | SA_SIGINFO};
    action.sa_sigaction = handle;
    sigaltstack(&alternate, 0);
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGFPE, &action, 0);
    char *const pages = (char *)mmap(0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + PAGE;
    guard = pages;
    if (node == 0) bz_publish(0, bz_alloc(3 * 64));
    shared = bz_lookup(0);
    if (node == 0) shared[0] = 1;
    bz_barrier();
    uint64_t round = 0;
    for (unsigned n = 0; n < ROUNDS; n++)
        for (enum kind kind = 0; kind < KINDS; kind++) {
            round++;
            if (node == 0) {
                round_now = round;
                uint64_t expected = written(round);
                if (kind == MULTIPLY) {
                    double value;
                    memcpy(&value, &expected, sizeof value);
                    value *= factor;
                    memcpy(&expected, &value, sizeof value);
                }
                if (kind == DIVIDE) expected = UINT64_MAX / (UINT64_MAX / expected);
                if (kind == COMPARE) {
                    /* The page holds what is written: all eight bytes are the same. */
                    mprotect(pages, PAGE, PROT_READ | PROT_WRITE);
                    memcpy(pages, &expected, sizeof expected);
                    expected = 0;
                }
                const uint64_t got = run(kind);
                guard = pages;
                if (got != expected || handled != round) {
                    if (!wrong++) printf("kind %d round %lu: %lu for %lu, %lu signals\n", kind, (unsigned long)round, (unsigned long)got, (unsigned long)expected, (unsigned long)handled);
                    handled = round;
                }
            } else if (node == 1) {
                while (shared[8] != round) continue;
                shared[0] = shared[1] = written(round);
                shared[16] = round;
            }
        }
    wrong = bz_reduce_sum_u64(wrong + odd);
    if (node == 0) printf("wrong %lu\n", (unsigned long)wrong);
    return wrong != 0;
}
