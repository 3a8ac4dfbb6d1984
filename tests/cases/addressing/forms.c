//# flags: -O0 | -O1 | -O2 | -O3 | -Os
//# link: -pie | -no-pie | -no-pie -s
//# shared: 2
/* What compilers make of arrays, structures, bit fields, unions, pointers to pointers, volatile and thread-local variables,
 * in all widths; further forms by inline assembly: absolute, 64-bit absolute, 32-bit addresses, segment overrides. */
#define _GNU_SOURCE
#include "arena.h"

struct packed {
    char a;
    int b __attribute__((packed));
    short c __attribute__((packed));
    uint64_t d __attribute__((packed));
    unsigned e : 3, f : 11, g : 18;
    signed long h : 40;
};
union view { uint64_t whole; unsigned char bytes[8]; uint16_t halves[4]; float f; double d; };
struct list { struct list *next; int value; };
static int global_array[100];
static _Thread_local int thread_array[16];
volatile int global_counter;

__attribute__((noinline)) static void structures(struct packed *p, int n) {
    for (int i = 0; i < n; i++) {
        p[i].a = (char)(i * 3), p[i].b = i << 10, p[i].c = (short)(-i), p[i].d = (uint64_t)i << 33;
        p[i].e = (unsigned)i, p[i].f = (unsigned)i * 5, p[i].g = (unsigned)i * 1000, p[i].h = -(long)i << 20;
    }
    for (int i = 1; i < n; i++) {
        p[i].b += p[i - 1].b ^ p[i].a;
        p[i].d -= p[i - 1].d * 3;
        p[i].f ^= p[i - 1].g;
        p[i].h += p[i - 1].h;
        mix((uint64_t)p[i].b), mix(p[i].d), mix(p[i].e), mix(p[i].f), mix(p[i].g), mix((uint64_t)p[i].h), mix((uint64_t)p[i].c);
    }
}

#define ARRAY(name, type)                                                       \
    __attribute__((noinline)) static void name(type *a, int n) {                \
        for (int i = 0; i < n; i++) a[i] = (type)(i * 77 + (i >> 2));           \
        for (int i = 0; i + 3 < n; i += 2) {                                    \
            type t = a[i];                                                      \
            a[i] = (type)(a[n - 1 - i] + a[i + 3] * 3);                         \
            a[n - 1 - i] = (type)(t - a[i + 1]);                                \
            a[(i * 5) % n]++;                                                   \
        }                                                                       \
        mix_bytes(a, sizeof(type) * (size_t)n);                                 \
    }
ARRAY(bytes, unsigned char)
ARRAY(shorts, short)
ARRAY(ints, int)
ARRAY(longs, int64_t)
ARRAY(floats, float)
ARRAY(doubles, double)

__attribute__((noinline)) static void lists(unsigned char *memory) {
    struct list *nodes = (struct list *)memory, *head = 0;
    for (int i = 0; i < 100; i++) {
        struct list *node = &nodes[i * 37 % 100];
        node->value = i;
        node->next = head;
        head = node;
    }
    struct list **where = &head;
    while (*where)
        if ((*where)->value % 3 == 0)
            *where = (*where)->next;
        else
            where = &(*where)->next;
    for (struct list *l = head; l; l = l->next)
        mix((uint64_t)l->value);
}

static void assembly(void) {
    unsigned char *low = (unsigned char *)mmap((void *)0x30000000, 8192, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    EXPECT(low == (unsigned char *)0x30000000, "low memory");
    for (int i = 0; i < 8192; i++)
        low[i] = (unsigned char)(i * 5);
    uint64_t a, b = 0x1122334455667788, c, d;
    __asm__ volatile("mov 0x30000010, %0\n mov %1, 0x30000021\n" : "=r"(a) : "r"(b) : "memory");
    mix(a);
    __asm__ volatile("movabs 0x30000033, %%rax\n add $5, %%rax\n movabs %%rax, 0x30000047\n movabs 0x30000050, %%al\n"
                     "movabs %%eax, 0x30000060" : "=a"(a) : : "memory");
    mix(a);
    __asm__ volatile("mov (%k2), %0\n mov %0, 64(%k2,%k3,4)\n mov %%fs:0, %1\n" : "=&r"(a), "=&r"(c) : "r"(low), "r"(7ul) : "memory");
    mix(a);
    __asm__ volatile("addr32 rep movsb" : "+S"(low), "+D"(*(uint64_t[]){(uint64_t)low + 100}) : "c"(0) : "memory");
    mix_bytes((void *)0x30000000, 8192);
    thread_array[3] = 9;
    for (int i = 0; i < 16; i++)
        thread_array[i] += i, mix((uint64_t)thread_array[i]);
}

int main(void) {
    arena_begin(65536);
    structures((struct packed *)(ARENA + 1), 200);
    report("structures");
    bytes(ARENA + 3, 1000), shorts((short *)(ARENA + 1), 700), ints((int *)(ARENA + 62), 500), longs((int64_t *)(ARENA + 5), 300);
    floats((float *)(ARENA + 8), 400), doubles((double *)(ARENA + 60), 300);
    ints(global_array, 100);
    report("arrays");
    lists(ARENA + 128);
    report("lists");
    union view *views = (union view *)(ARENA + 4096 - 4);
    for (int i = 0; i < 64; i++) {
        views[i].whole = (uint64_t)i * 0x0123456789abcdef;
        views[i].bytes[3] ^= 0x55;
        views[i].halves[3]++;
        views[i].f *= 2;
        mix(views[i].whole);
        global_counter++;
    }
    mix((uint64_t)global_counter);
    report("unions");
    assembly();
    report("assembly");
    return case_result();
}
