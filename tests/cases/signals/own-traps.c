//# flags: -O0 | -O2
//# link: -pie | -static
//# nodes: 2 3
/* A handler of SIGTRAP: for breakpoints of the program's own, and for what it sends itself. It uses shared memory, of which other nodes take copies away all the
 * time; in between the program counts in the same memory, and nothing may be lost. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COUNTS = 20000, EVERY = 20, WORDS = 8 };
static uint64_t *shared;
static volatile uint64_t breakpoints, sent, strange;

static void handle(int number, siginfo_t *information, void *context) {
    if (number != SIGTRAP || !context) strange++;
    if (information->si_code == SI_QUEUE) {
        if (information->si_value.sival_int != 1234 || information->si_pid != getpid()) strange++;
        sent++;
    } else {
        breakpoints++;
    }
    for (int k = 0; k < WORDS; k++) __atomic_fetch_add(&shared[k * 8], 1, __ATOMIC_SEQ_CST);
}

int main(void) {
    const unsigned node = bz_node();
    struct sigaction action = {.sa_flags = SA_SIGINFO}, asked;
    action.sa_sigaction = handle;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGTRAP, &action, 0) || sigaction(SIGTRAP, 0, &asked) || asked.sa_sigaction != handle) strange++;
    if (node == 0) bz_publish(0, bz_alloc(WORDS * 64));
    shared = bz_lookup(0);
    const union sigval value = {.sival_int = 1234};
    bz_barrier();
    uint64_t counted = 0;
    for (int n = 0; n < COUNTS; n++) {
        uint64_t *word = &shared[n % WORDS * 8];
        __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
        counted++;
        if (n % (COUNTS / EVERY) == 0) __asm__ volatile("int3" : : : "memory");
        if (n % (COUNTS / EVERY) == 7 && sigqueue(getpid(), SIGTRAP, value)) strange++;
    }
    strange += breakpoints != EVERY;
    strange += sent != EVERY;
    const uint64_t expected = bz_reduce_sum_u64(counted + WORDS * (breakpoints + sent));
    bz_barrier();
    uint64_t sum = 0;
    for (int k = 0; k < WORDS; k++) sum += shared[k * 8];
    strange += sum != expected;
    strange = bz_reduce_sum_u64(strange);
    if (node == 0) printf("strange %lu\n", (unsigned long)strange);
    return strange != 0;
}
