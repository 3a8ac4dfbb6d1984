//# flags: -O2
//# link: -pie | -no-pie -s
//# nodes: 2 3
//# needs-cpu: xsavec xsaveopt avx
/* xsave, xsavec, xsaveopt and xrstor, with and without REX.W, to shared memory that other nodes look at. `verify` took xsavec for cmpxchg16b, which has the
 * same opcode: it believed rbx and rcx to be read, and found the check that uses rbx unsound. xsaves and xrstors have that opcode, too, but are the
 * kernel's: the program contains them and never runs them. */
#include <blizzard.h>
#include <stdio.h>
#include <string.h>

enum { AREA = 16384, FORMS = 6 };

/* Every register but rbx is read behind the first instruction, so the check has rbx. Returns 127. */
#define ALL_BUT_RBX(name, saves, restores)                                                                             \
    long name(void *area, long never);                                                                                 \
    __asm__(".text\n .globl " #name "\n .type " #name ", @function\n" #name ":\n"                                      \
            ".cfi_startproc\n push %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"                         \
            "mov $7, %eax\n xor %edx, %edx\n test %rsi, %rsi\n jnz 1f\n"                                                \
            "mov $1, %ecx\n mov $2, %esi\n mov $4, %r8d\n mov $8, %r9d\n mov $16, %r10d\n mov $32, %r11d\n"             \
            "2:" saves " (%rdi)\n" restores " (%rdi)\n"                                                                \
            "add %rcx, %rsi\n add %r8, %rsi\n add %r9, %rsi\n add %r10, %rsi\n lea 64(%rsi,%r11), %rax\n"               \
            "pop %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbx\n ret\n"                                         \
            ".cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"                                                     \
            "1: xsaves (%rdi)\n xrstors (%rdi)\n xsaves64 (%rdi)\n xrstors64 (%rdi)\n jmp 2b\n"                         \
            ".cfi_endproc\n .size " #name ", . - " #name "\n");

ALL_BUT_RBX(plain, "xsave", "xrstor")
ALL_BUT_RBX(plain64, "xsave64", "xrstor64")
ALL_BUT_RBX(compact, "xsavec", "xrstor")
ALL_BUT_RBX(compact64, "xsavec64", "xrstor64")
ALL_BUT_RBX(changed, "xsaveopt", "xrstor")
ALL_BUT_RBX(changed64, "xsaveopt64", "xrstor64")

static long (*const forms[FORMS])(void *, long) = {plain, plain64, compact, compact64, changed, changed64};

/* The upper half of ymm5 and a number of the x87 stack go through the area. */
static uint64_t through_area(long (*form)(void *, long), unsigned char *area, uint64_t value) {
    uint64_t in[4] = {value, ~value, value * 3, value * 5}, out[4];
    double number = 0;
    long sum = form(area, 0);
    __asm__ volatile("vmovdqu (%[in]), %%ymm5\n fldpi\n mov %[area], %%rdi\n xor %%esi, %%esi\n call *%[form]\n"
                     "vmovdqu %%ymm5, (%[out])\n fstpl %[number]\n vzeroupper\n"
                     : "+a"(sum), [number] "=m"(number)
                     : [in] "r"(in), [out] "r"(out), [area] "r"(area), [form] "r"(form)
                     : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm5", "st", "memory", "cc");
    return (sum != 127) + (memcmp(in, out, sizeof in) != 0) + (number < 3.14159 || number > 3.1416);
}

int main(void) {
    unsigned me = bz_node(), nodes = bz_nodes();
    if (me == 0)
        bz_publish(0, bz_alloc((uint64_t)nodes * FORMS * AREA + 64));
    unsigned char *base = (unsigned char *)(((uintptr_t)bz_lookup(0) + 63) & ~(uintptr_t)63);
    uint64_t wrong = 0, seen = 0;
    for (unsigned round = 0; round < 12; round++) {
        for (unsigned k = 0; k < FORMS; k++) {
            unsigned char *area = base + (me * FORMS + k) * AREA;
            wrong += through_area(forms[k], area, 0x1234567890abcdefull * (round + 1) + me);
            uint64_t header[2];
            memcpy(header, area + 512, sizeof header);
            /* The form is the one that was asked for: bit 63 says that the area is compact. x87, SSE and AVX were in use. */
            wrong += (header[1] >> 63) != (k == 2 || k == 3) || (header[0] & 7) != 7;
        }
        bz_barrier();
        /* Another node takes them over. */
        unsigned char *other = base + ((me + 1) % nodes) * FORMS * AREA;
        for (unsigned k = 0; k < FORMS; k++)
            for (unsigned i = 0; i < 576; i += 64)
                seen += other[k * AREA + i];
        bz_barrier();
    }
    wrong = bz_reduce_sum_u64(wrong);
    if (me == 0)
        printf("%llu wrong\n", (unsigned long long)wrong);
    return wrong != 0 || seen == 1;
}
