//# flags: -O0 | -O1 | -O2 | -O2 -fno-omit-frame-pointer | -Os
//# link: -pie | -no-pie -s
/* Leaf functions keep values in the 128 bytes below the stack pointer while they access memory; inserted code that pushes must
 * step over them, also where a signal arrives. */
#include "arena.h"
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks;
static void tick(int n) { ticks++; (void)n; }

__attribute__((noinline)) static uint64_t leaf(uint64_t *data, unsigned n) {
    uint64_t local[12];
    for (unsigned i = 0; i < 12; i++)
        local[i] = data[(i * 5 + n) & 63] + i;
    for (unsigned i = 0; i < 40; i++) {
        local[i % 12] ^= data[local[(i + 5) % 12] & 63] * 7;
        data[(i + n) & 63] += local[(i + 1) % 12];
    }
    uint64_t sum = 0;
    for (unsigned i = 0; i < 12; i++)
        sum = sum * 31 + local[i];
    return sum;
}
__attribute__((noinline)) static uint64_t by_hand(uint64_t *data) {
    uint64_t result;
    /* The compiler may have locals in its own red zone: this one is below it. */
    __asm__ volatile("lea -256(%%rsp), %%rsp\n mov $0x1111, %%eax\n mov %%rax, -8(%%rsp)\n mov %%eax, -16(%%rsp)\n movw $0x77, -128(%%rsp)\n"
                     "cmp %%rax, %%rax\n stc\n"
                     "mov (%1), %%rcx\n adc 8(%1), %%rcx\n mov %%rcx, 16(%1)\n"
                     "mov -8(%%rsp), %%rdx\n adc %%rdx, %%rcx\n movzwl -128(%%rsp), %%edx\n add %%rdx, %%rcx\n"
                     "mov -16(%%rsp), %%edx\n add %%rdx, %%rcx\n mov %%rcx, %%rax\n"
                     "lea 256(%%rsp), %%rsp\n mov %%rax, %0\n"
                     : "=r"(result) : "r"(data) : "rax", "rcx", "rdx", "cc", "memory");
    return result;
}

int main(void) {
    uint64_t data[64];
    for (unsigned i = 0; i < 64; i++)
        data[i] = i * 0x123456789;
    signal(SIGALRM, tick);
    struct itimerval often = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &often, 0);
    for (unsigned n = 0; n < 20000; n++)
        mix(leaf(data, n));
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, 0);
    mix(by_hand(data));
    mix_bytes(data, sizeof data);
    report("red zone");
    return 0;
}
