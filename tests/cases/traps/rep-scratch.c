//# flags: -O1 | -O2
//# link: -pie | -no-pie -s
/* rcx, rsi and rdi are operands of string instructions though they do not appear in them: a check's scratch register must be
 * another one, before and after. */
#include "arena.h"

__attribute__((noinline)) static uint64_t copy(unsigned char *to, const unsigned char *from, uint64_t n, uint64_t *sum) {
    uint64_t left = n, a = n * 3, b = n ^ 5, c = n + 7, d = ~n, e = n << 9, f = n - 1;
    __asm__ volatile("mov (%[sum]), %%rax\n"
                     "rep movsb\n"
                     "add %%rcx, %%rax\n"
                     "mov %%rax, (%[sum])\n"
                     "mov -1(%%rdi), %%al\n"
                     "mov $17, %%ecx\n"
                     "sub $17, %%rdi\n"
                     "repne scasb\n"
                     : "+D"(to), "+S"(from), "+c"(left), [a] "+b"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [e] "+r"(e), [f] "+r"(f)
                     : [sum] "r"(sum) : "rax", "cc", "memory");
    return left + (uint64_t)a * 3 + b * 5 + c * 7 + d * 11 + e * 13 + f;
}

int main(void) {
    arena_begin(8192);
    uint64_t sum = 0;
    for (unsigned i = 0; i < 4096; i++)
        ARENA[i] = (unsigned char)(i * 29 >> 2);
    for (uint64_t n = 20; n < 2000; n += 37) {
        mix(copy(ARENA + 4096 + n % 61, ARENA + n, n, &sum));
        mix(sum);
    }
    mix_bytes(ARENA, 8192);
    report("copied");
    return 0;
}
