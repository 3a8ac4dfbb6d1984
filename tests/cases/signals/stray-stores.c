//# uses: blizzard
//# flags: -O0 | -O2
//# link: -pie | -no-pie
//# nodes: 1 2
/* Stores to addresses where Blizzard has its tag table, and the plain program has nothing: they landed there, without a fault, and changed which accesses
 * of other addresses are allowed. A store that reaches into the range from below counts, too. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static sigjmp_buf back;
static volatile uint64_t fault_address;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    fault_address = (uint64_t)info->si_addr;
    siglongjmp(back, 1);
}

typedef void store_t(uint64_t at);
static void byte(uint64_t at) { *(volatile char *)at = 1; }
static void word(uint64_t at) { *(volatile uint64_t *)at = 1; }
static void real(uint64_t at) { *(volatile double *)at = 1.5; }
static void vector(uint64_t at) { _mm_storeu_si128((__m128i *)at, _mm_set1_epi8(1)); }
static void exchange(uint64_t at) { __atomic_fetch_add((uint64_t *)at, 1, __ATOMIC_SEQ_CST); }
static void string(uint64_t at) {
    uint64_t count = 9;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(1) : "memory");
}
static void add(uint64_t at) { __asm__ volatile("addl $1, (%0)" : : "r"(at) : "memory", "cc"); }

static store_t *const STORES[] = {byte, word, real, vector, exchange, string, add};
static const uint64_t ADDRESSES[] = {
    0x7fff8000, 0x7fffa000, 0x80000000, 0x80000fff, 0x9ffff000, 0x100000000, 0x123456789, 0x1000000000, 0x7f00000000,
    0x10000000000, 0x15555555555, 0x1ff00000000, 0x1ffffffffff, 0x20000000000,
};

int main(void) {
    uint64_t wrong = 0;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    for (unsigned s = 0; s < sizeof STORES / sizeof *STORES; s++)
        for (unsigned a = 0; a < sizeof ADDRESSES / sizeof *ADDRESSES; a++) {
            fault_address = 0;
            if (sigsetjmp(back, 1) == 0) {
                STORES[s](ADDRESSES[a]);
                fault_address = ~0ul;
            }
            if (fault_address != ADDRESSES[a]) {
                fprintf(stderr, "store %u at %#lx: %#lx\n", s, ADDRESSES[a], fault_address);
                wrong++;
            }
        }
    wrong = bz_reduce_sum_u64(wrong);
    if (bz_node() == 0) printf("%lu wrong\n", wrong);
    return wrong != 0;
}
