//# flags: -O2
//# link: -pie | -no-pie
/* The old idiom to find one's own address, `call` to the next instruction and `pop`: data found from there must be the data. */
#include "arena.h"
static const uint64_t constant __attribute__((used)) = 0x1234567;
__attribute__((noinline)) static uint64_t own_address(void) {
    uint64_t value;
    __asm__ volatile("sub $128, %%rsp\n"
                     "call 1f\n"
                     "1: pop %0\n"
                     "add $128, %%rsp\n"
                     "lea 2f-1b(%0), %0\n"
                     "mov (%0), %0\n"
                     "jmp 3f\n"
                     "2: .quad 0x7654321\n"
                     "3:\n"
                     : "=&r"(value) : : "memory", "cc");
    return value;
}
int main(void) {
    printf("%llx %llx\n", (unsigned long long)own_address(), (unsigned long long)constant);
    return 0;
}
