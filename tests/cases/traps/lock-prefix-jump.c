//# flags: -O0 | -O2
//# link: -pie | -no-pie | -pie -s
/* Overlapping instructions: a jump over a lock prefix, as the C library does where a program has one thread. Other rewriters
 * decode one of the two instructions only and lose the other. */
#include "arena.h"

static volatile int threads;

__attribute__((noinline)) static uint64_t add(uint64_t *at, uint64_t value) {
    __asm__ volatile("cmpl $0, %2\n"
                     "je 1f\n"
                     "lock\n"
                     "1: xaddq %0, %1\n"
                     : "+r"(value), "+m"(*at) : "m"(threads) : "cc", "memory");
    return value;
}
__attribute__((noinline)) static int compare_exchange(int *at, int expected, int value) {
    __asm__ volatile("testb $1, %2\n"
                     "jz 1f\n"
                     "lock\n"
                     "1: cmpxchgl %3, %1\n"
                     : "+a"(expected), "+m"(*at) : "m"(threads), "r"(value) : "cc", "memory");
    return expected;
}
/* The same bytes decoded from two starting points, both executed: b8 .. (mov) hides an add and a jump. */
__attribute__((noinline)) static unsigned hidden(int inside) {
    unsigned result;
    __asm__ volatile("xor %%eax, %%eax\n"
                     "test %1, %1\n"
                     "jnz 2f\n"
                     "1: .byte 0xb8\n"
                     "2: .byte 0x83, 0xc0, 0x07, 0x90\n"
                     "add $1, %%eax\n"
                     : "=&a"(result) : "r"(inside) : "cc");
    return result;
}

int main(void) {
    uint64_t counter = 5;
    int word = 3;
    for (int i = 0; i < 20; i++) {
        threads = i & 1;
        mix(add(&counter, (uint64_t)i));
        mix((uint64_t)compare_exchange(&word, 3 + i / 2, word + 1));
        mix(hidden(i % 3 == 0));
    }
    printf("%llu %d %x %x\n", (unsigned long long)counter, word, hidden(0), hidden(1));
    report("overlapping");
    return 0;
}
