//# flags: -O0 | -O1 | -O2
//# link: -pie | -no-pie
//# compilers: gcc
/* Bits of strings in memory by a number in a register, as Free Pascal tests sets: the check needs two registers, and where both are dead and no flag is live
 * it begins with the extension of the number, which the audit did not know as the beginning of a check. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BITS(name, suffix, type)                                                                             \
    __attribute__((noinline)) int test_##name(type *p, type i) {                                             \
        int r;                                                                                               \
        __asm__ volatile("xor %0, %0\n bt" suffix " %2, (%1)\n adc $0, %0"                                   \
                         : "=&r"(r) : "r"(p), "r"(i) : "cc", "rcx", "rdi", "r8", "r9", "memory");            \
        return r;                                                                                            \
    }                                                                                                        \
    __attribute__((noinline)) int set_##name(type *p, type i) {                                              \
        unsigned char r;                                                                                     \
        __asm__ volatile("bts" suffix " %2, 8(%1)\n setc %0"                                                 \
                         : "=&r"(r) : "r"(p), "r"(i) : "cc", "rcx", "rdi", "r8", "r9", "memory");            \
        return r;                                                                                            \
    }                                                                                                        \
    __attribute__((noinline)) int flip_##name(type *p, type i) {                                             \
        unsigned char r;                                                                                     \
        __asm__ volatile("btc" suffix " %2, (%1)\n setc %0"                                                  \
                         : "=&r"(r) : "r"(p), "r"(i) : "cc", "memory");                                      \
        return r;                                                                                            \
    }                                                                                                        \
    __attribute__((noinline)) int clear_##name(type *p, type i) {                                            \
        unsigned char r;                                                                                     \
        __asm__ volatile("btr" suffix " %2, -4(%1)\n setc %0"                                                \
                         : "=&r"(r) : "r"(p), "r"(i) : "cc", "rcx", "rdi", "memory");                        \
        return r;                                                                                            \
    }                                                                                                        \
    static uint64_t all_##name(unsigned char *bytes, long from, long to) {                                   \
        uint64_t s = 7;                                                                                      \
        for (long i = from; i < to; i += 3) {                                                                \
            s = s * 31 + test_##name((type *)bytes, (type)i) + 2 * set_##name((type *)bytes, (type)(i * 5)); \
            s = s * 31 + flip_##name((type *)bytes, (type)(i * 7)) + 2 * clear_##name((type *)bytes, (type)(i * 11)); \
        }                                                                                                    \
        return s;                                                                                            \
    }
BITS(word, "w", int16_t)
BITS(dword, "l", int32_t)
BITS(qword, "q", int64_t)

int main(void) {
    unsigned char *bytes = calloc(1, 16384);
    uint64_t s = all_word(bytes + 8192, -1500, 1500);
    s = s * 31 + all_dword(bytes + 8195, -1500, 1500);
    s = s * 31 + all_qword(bytes + 8192, -1500, 1500);
    for (int i = 0; i < 16384; i++) s = s * 31 + bytes[i];
    printf("%llx\n", (unsigned long long)s);
    return 0;
}
