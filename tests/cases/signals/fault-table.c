//# uses: blizzard
//# flags: -O0 | -O2 | -O3 -fomit-frame-pointer
//# link: -pie | -no-pie
//# nodes: 1 2 3
//# timeout: 120
/* Faults anywhere in the 64-bit range: signal, `si_code` and `si_addr` are those of the plain program, for loads and stores of each width, and for either half of
 * an access that straddles. The test of a tag stood in the way: it faults itself, with its own address, where the program's address is not canonical or in the
 * kernel's half, and reads other memory of the program in place of a tag where half the bits are used. Pages of the runtime gave SEGV_ACCERR, and loads from
 * its tags no signal at all.
 *
 * Not here: the segment and the two context pages (0x7fff0000), where the plain program has nothing; and where the tag table lies, loads, of which only checks take care
 * (loads-from-tags.c), and accesses whose check looks at no tag (string instructions, gathers, the saved state of the processor): they read tags, and with several
 * nodes may change those of the segment. */
#define _GNU_SOURCE
#include "blizzard.h"
#include <fcntl.h>
#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define TAGS 0x7fff8000ul
#define SEGMENT 0x200000000000ul
/* As large as it is on this machine. */
static uint64_t segment_bytes;
#define SEGMENT_BYTES segment_bytes
#define OURS 0x123400000000ul
#define VECTOR __attribute__((target("avx")))

static sigjmp_buf back;
static volatile int got_signal, got_code;
static volatile uint64_t got_address;
/* Read as tags, they forbid everything. */
static unsigned char ones[1 << 16] __attribute__((aligned(4096)));
static unsigned char buffer[4096] __attribute__((aligned(64)));
static char *text;
static size_t text_bytes;
static FILE *out;
/* A word of each node in one block. */
static volatile uint64_t *shared;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    got_signal = number;
    got_code = info->si_code;
    got_address = (uint64_t)info->si_addr;
    /* A miss while the signal is blocked: the runtime uses tags that the access may have been kept away from. */
    shared[bz_node()]++;
    siglongjmp(back, 1);
}

typedef void access_t(uint64_t at);
#define LOAD(name, type) static void name(uint64_t at) { (void)*(volatile type *)at; }
#define STORE(name, type) static void name(uint64_t at) { *(volatile type *)at = 1; }
LOAD(load1, uint8_t)
LOAD(load2, uint16_t)
LOAD(load4, uint32_t)
LOAD(load8, uint64_t)
STORE(store1, uint8_t)
STORE(store2, uint16_t)
STORE(store4, uint32_t)
STORE(store8, uint64_t)
#define ASM(name, text) static void name(uint64_t at) { __asm__ volatile(text : : "r"(at) : "memory", "cc", "rax", "rcx", "rdx"); }
ASM(load16, "movdqu (%0), %%xmm0")
ASM(store16, "movdqu %%xmm0, (%0)")
ASM(aligned16, "movaps (%0), %%xmm0")
VECTOR static void load32(uint64_t at) { __asm__ volatile("vmovdqu (%0), %%ymm0; vzeroupper" : : "r"(at) : "memory"); }
VECTOR static void store32(uint64_t at) { __asm__ volatile("vmovdqu %%ymm0, (%0); vzeroupper" : : "r"(at) : "memory"); }
ASM(real10, "fldt (%0); fstp %%st(0)")
ASM(add4, "addl $1, (%0)")
ASM(exchange8, "lock xaddq %%rax, (%0)")
ASM(compare16, "mov %0, %%rcx; and $-16, %%rcx; xor %%eax, %%eax; xor %%edx, %%edx; lock cmpxchg16b (%%rcx)")
/* With flags and registers that are needed behind it. */
ASM(flags, "cmp $1, %%rax; movl (%0), %%ecx; adc $0, %%ecx; jz 1f; nop; 1:")
ASM(pushed, "pushq (%0); popq %%rax")
ASM(popped, "pushq $5; popq (%0)")
/* A base of rbp or rsp makes it a stack fault: SIGBUS in place of SIGSEGV where the address is not canonical. */
ASM(by_rbp, "push %%rbp; mov %0, %%rbp; movl (%%rbp), %%eax; pop %%rbp")
ASM(to_rbp, "push %%rbp; mov %0, %%rbp; movl %%eax, (%%rbp); pop %%rbp")
ASM(by_index, "xor %%ecx, %%ecx; movq (%%rcx,%0), %%rax")
ASM(by_displacement, "lea -0x1000(%0), %%rcx; movl %%eax, 0x1000(%%rcx)")
ASM(bit, "xor %%ecx, %%ecx; btsq %%rcx, (%0)")
ASM(far_bit, "lea -4096(%0), %%rax; mov $32768, %%ecx; btq %%rcx, (%%rax)")
/* One check for several accesses: the first faults. */
ASM(several, "movq (%0), %%rax; movq 8(%0), %%rcx; movq %%rax, 16(%0); addq %%rcx, 24(%0)")
#define STRING(name, text) \
    static void name(uint64_t at) { \
        uint64_t from = (uint64_t)buffer, count = 9; \
        __asm__ volatile(text : "+D"(at), "+S"(from), "+c"(count) : "a"(1) : "memory", "cc"); \
    }
STRING(rep_stosb, "rep stosb")
STRING(rep_stosq, "rep stosq")
STRING(stosl, "stosl")
STRING(rep_movsb_to, "rep movsb")
STRING(down_stosq, "std; rep stosq; cld")

STRING(rep_movsb_from, "xchg %%rdi, %%rsi; rep movsb")
STRING(lodsq, "xchg %%rdi, %%rsi; lodsq")
STRING(repne_scasb, "repne scasb")
STRING(repe_cmpsb, "repe cmpsb")
ASM(saved_state, "mov %0, %%rax; and $-16, %%rax; fxsave64 (%%rax)")
__attribute__((target("avx2"))) static void gather(uint64_t at) {
    __asm__ volatile("vpcmpeqd %%ymm1, %%ymm1, %%ymm1; vpxor %%ymm2, %%ymm2, %%ymm2; vpgatherdd %%ymm1, (%0,%%ymm2,4), %%ymm0; vzeroupper" : : "r"(at) : "memory");
}

static void loop(uint64_t at) {
    uint32_t sum = 0;
    for (uint64_t i = 0; i < 64; i++) sum += ((volatile uint32_t *)at)[i];
    buffer[0] = sum;
}
static void fill(uint64_t at) {
    for (uint64_t i = 0; i < 64; i++) ((volatile uint64_t *)at)[i] = i;
}

#ifndef LOADS_FROM_TAGS
#define LOADS_FROM_TAGS 0
#endif

/* READ: no store. FEW: accesses whose check looks at no tag. */
enum { ANY, READ = 1, AVX = 2, AVX2 = 4, FEW = 8 };
static const struct { const char *name; access_t *run; int kind; } ACCESSES[] = {
#define A(name) {#name, name, ANY}
#define R(name) {#name, name, READ}
    R(load1), R(load2), R(load4), R(load8), R(load16), {"load32", load32, READ | AVX}, A(store1), A(store2), A(store4), A(store8), A(store16), {"store32", store32, AVX},
    R(aligned16), R(real10), A(add4), A(exchange8), A(compare16), R(flags), R(pushed), A(popped), R(by_rbp), A(to_rbp), R(by_index),
    A(by_displacement), A(bit), R(far_bit), R(several), R(loop), A(fill),
    {"gather", gather, READ | FEW | AVX2},
#define F(name) {#name, name, FEW}
    F(rep_stosb), F(rep_stosq), F(stosl), F(rep_movsb_to), F(down_stosq), F(rep_movsb_from), F(lodsq), F(repne_scasb), F(repe_cmpsb), F(saved_state),
};

static void row(const char *name, uint64_t at) {
    const uint64_t table_end = TAGS + (1ul << 41);
    int in_table = at >= TAGS - 64 && at < table_end;
    fprintf(out, "%s\n", name);
    for (unsigned a = 0; a < sizeof ACCESSES / sizeof *ACCESSES; a++) {
        int kind = ACCESSES[a].kind;
        if (((kind & AVX) && !__builtin_cpu_supports("avx")) || ((kind & AVX2) && !__builtin_cpu_supports("avx2"))) continue;
        if (in_table && ((kind & FEW) || ((kind & READ) && !LOADS_FROM_TAGS))) continue;
        got_signal = 0;
        if (sigsetjmp(back, 1) == 0) ACCESSES[a].run(at);
        if (got_signal == 0)
            fprintf(out, "  %s: none\n", ACCESSES[a].name);
        else if (got_address == 0 && at != 0)
            fprintf(out, "  %s: %s code %d, no address\n", ACCESSES[a].name, strsignal(got_signal), got_code);
        else
            fprintf(out, "  %s: %s code %d, address %+ld\n", ACCESSES[a].name, strsignal(got_signal), got_code, (long)(got_address - at));
    }
}

static int finish(void) {
    fclose(out);
    uint64_t hash = 0;
    for (size_t i = 0; i < text_bytes; i++) hash = hash * 31 + (unsigned char)text[i];
    uint64_t least = bz_reduce_min_u64(hash), most = bz_reduce_max_u64(hash);
    if (bz_node() == 0) fwrite(text, 1, text_bytes, stdout);
    if (bz_node() == 0) printf("%s on all nodes\n", least == most ? "the same" : "not the same");
    return 0;
}

int main(void) {
    if (bz_node() == 0) bz_publish(0, bz_alloc(4096));
    shared = bz_lookup(0);
    out = open_memstream(&text, &text_bytes);
    memset(ones, 0xff, sizeof ones);
    static char alternate[1 << 16];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGBUS, &action, 0);
    struct sysinfo machine;
    sysinfo(&machine);
    const uint64_t memory = (machine.totalram + machine.totalswap) * machine.mem_unit;
    for (segment_bytes = 64ul << 30; segment_bytes < 4 * memory && segment_bytes < 512ul << 30;) segment_bytes *= 2;
    const uint64_t ADDRESSES[] = {
        /* Nothing is mapped here. */
        0, 1, 8, 0xfff, 0xffc, 0x1000, 0xfff9, 0x10000, 0x200000, 0x7ffdfffe, 0x7ffefc01, 0x7fff2000, 0x7fff7ffe,
        /* The tag table and its edges. */
        TAGS - 1, TAGS - 8, TAGS, TAGS + 4, 0x7ffffffc, 0x80000000, 0x801bffff, 0x9ffff000, 0xfffffffc, 0x100000000, 0x123456789, 0x7f00000000, 0x10000000000,
        0x1ff00000000, 0x1ffffffffff, TAGS + (SEGMENT >> 6) - 4, TAGS + (SEGMENT >> 6), TAGS + (SEGMENT >> 6) + 4095, TAGS + ((SEGMENT + SEGMENT_BYTES) >> 6) - 4, TAGS + ((SEGMENT + SEGMENT_BYTES) >> 6),
        0x2007fff7ffc, 0x2007fff8000, 0x2007fffffff, 0x20080000000,
        /* Around the segment. */
        SEGMENT - (4ul << 20), SEGMENT - (2ul << 20), SEGMENT - 4096, SEGMENT - 512, SEGMENT + SEGMENT_BYTES + 1, SEGMENT + SEGMENT_BYTES + 4096, SEGMENT + SEGMENT_BYTES + (2ul << 20) - 4,
        SEGMENT + SEGMENT_BYTES + (4ul << 20), 0x20fffffffffc, 0x210000000000,
        /* The end of the lower half, and what is not canonical. */
        0x7ffffffff000, 0x7ffffffffffc, 0x7fffffffffff, 0x800000000000, 0x800000000001, 0x8000000000000, 0x20000000000000, 0x1fffffffffffc0,
        0x7fffffffffffffff, 0x8000000000000000, 0xabcdef0123456789, 0xffff7fffffffffff, 0xffff7ffffffffffc,
        /* The kernel's half. */
        0xffff800000000000, 0xffff888000000000, 0xffffc00000001234, 0xffffffff80000000, 0xffffffff81000004, 0xffffffffff5ffffc, 0xffffffffff601000, -4096ul, -64ul, -8ul, -4ul, -1ul,
    };
    char name[64];
    for (unsigned i = 0; i < sizeof ADDRESSES / sizeof *ADDRESSES; i++) {
        if (LOADS_FROM_TAGS && (ADDRESSES[i] < TAGS - 64 || ADDRESSES[i] > TAGS + (1ul << 41))) continue;
        snprintf(name, sizeof name, "%#lx", ADDRESSES[i]);
        row(name, ADDRESSES[i]);
    }
    if (LOADS_FROM_TAGS) return finish();
    /* What would be the tag lies in the program's memory. */
    row("tags in the program's data", ((uint64_t)ones + 8 - TAGS) << 6);
    row("tags behind them", ((uint64_t)ones + sizeof ones - TAGS) << 6);

    /* Pages of the program: not mapped, read only, not mapped, no rights, not mapped, behind a file's end, beyond 512 bytes of it. */
    char *pages = (char *)OURS;
    char path[] = "/tmp/blizzard-faults-XXXXXX";
    int file = mkstemp(path);
    unlink(path);
    if (file < 0 || ftruncate(file, 512)) return 2;
    int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(pages + 4096, 4096, PROT_READ, fixed, -1, 0) != pages + 4096 ||
        mmap(pages + 3 * 4096, 4096, PROT_NONE, fixed, -1, 0) != pages + 3 * 4096 ||
        mmap(pages + 5 * 4096, 2 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0) != pages + 5 * 4096 ||
        mmap(pages + 8 * 4096, 4096, PROT_READ | PROT_WRITE, fixed, -1, 0) != pages + 8 * 4096)
        return 2;
    static const char *const NAMES[] = {"nothing", "read only", "nothing again", "no rights", "nothing for once", "a file", "behind its end", "nothing", "writable"};
    static const int PLACES[] = {0, 4, 64, 2048, 4088, 4092, 4095};
    for (unsigned page = 0; page < 9; page++)
        for (unsigned p = 0; p < sizeof PLACES / sizeof *PLACES; p++) {
            snprintf(name, sizeof name, "%s + %d", NAMES[page], PLACES[p]);
            row(name, OURS + page * 4096 + PLACES[p]);
        }

    return finish();
}
