/* A program with stores, loads, flags across accesses, switches, string and vector code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { int a; long b; char c[20]; double d; struct node *next; };
static int pick(int x, struct node *p) {
    switch (x) {
    case 0: return p->a;
    case 1: return (int)p->b;
    case 2: return p->c[3];
    case 3: p->a++; return 3;
    case 4: return p->next ? p->next->a : 4;
    case 5: return 7;
    case 6: p->b = 3; return 1;
    }
    return 0;
}
__attribute__((noinline)) static unsigned long mix(unsigned long *v, int n) {
    unsigned long h = 0;
    for (int i = 0; i < n; i++) {
        unsigned char carry = __builtin_add_overflow(h, v[i], &h);
        v[i] ^= h;
        h += carry;
    }
    return h;
}
/* Status flags live across accesses: the carry in one, the result of a signed comparison in the other. */
__attribute__((noinline)) static void add_all(unsigned long *a, unsigned long *b, long n) {
    __asm__ volatile("clc\n1: mov (%1), %%rax\n adc (%0), %%rax\n mov %%rax, (%0)\n lea 8(%0), %0\n lea 8(%1), %1\n dec %2\n jnz 1b"
                     : "+r"(a), "+r"(b), "+r"(n)
                     :
                     : "rax", "memory", "cc");
}
__attribute__((noinline)) static long at_least(long *p, long x, long y) {
    long r;
    __asm__ volatile("cmp %2, %3\n mov (%1), %0\n jl 1f\n add (%1), %0\n1: jg 2f\n inc %0\n2:"
                     : "=&r"(r)
                     : "r"(p), "r"(x), "r"(y)
                     : "cc", "memory");
    return r;
}
int main(int argc, char **argv) {
    struct node *list = 0;
    for (int i = 0; i < 100; i++) {
        struct node *q = malloc(sizeof *q);
        memset(q, i, sizeof *q);
        q->next = list;
        q->a = i;
        q->d = i * 0.5;
        list = q;
        list->b += pick(i % 8, list);
    }
    unsigned long v[32], total = 0;
    memcpy(v, list, sizeof *list);
    for (struct node *q = list; q; q = q->next) total += q->a * q->b + (long)q->d;
    add_all(v, v + 8, 8);
    printf("%ld\n", at_least((long *)v, argc, 2));
    printf("%lu %lu %d\n", total, mix(v, 8), argc + (argv[0] != 0));
    return 0;
}

#ifdef LARGE
char large[3ul << 30];
#endif
