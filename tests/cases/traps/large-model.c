//# flags: -O1 -mcmodel=large | -O2 -mcmodel=medium | -O2 -mno-red-zone | -O2 -fcf-protection=full | -O2 -fcf-protection=none | -O2 -fstack-protector-all -D_FORTIFY_SOURCE=2
//# compilers: gcc
//# link: -no-pie | -no-pie -s
/* Code models and hardening options: 64-bit immediates for addresses of functions and data, calls through registers, endbr64. */
#include "arena.h"
static uint64_t big[10000];
static const char *const names[] = {"a", "bc", "def"};
__attribute__((noinline)) static uint64_t f(uint64_t n) { big[n % 10000] += n; return big[(n * 7) % 10000] + (uint64_t)names[n % 3][0]; }
uint64_t (*function)(uint64_t) = f;
int main(void) {
    char text[64];
    for (uint64_t n = 0; n < 20000; n++)
        mix(f(n) + (n % 2 ? function(n) : 1));
    for (int i = 0; i < 10; i++) {
        snprintf(text, sizeof text, "%s %d", names[i % 3], i);
        mix_bytes(text, strlen(text));
    }
    report("models");
    return 0;
}
