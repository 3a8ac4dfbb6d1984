//# flags: -O2 | -O1
//# link: -pie | -no-pie
//# compilers: gcc
//# with: never-returns_helper.c
/* Code behind calls that never return, though the compiler does not know: the function's own registers hold there what they held, and the audit took
 * them for unknown when such code joined the rest (found in bcftools, nim and ldc2). */
#include <stdio.h>
#include <stdlib.h>
void give_up(const char *why, int number);

__attribute__((noinline)) long sum(long **rows, unsigned char *kinds, int n, int limit) {
    long s = 0;
    int local[4] = {1, 2, 3, 4}, *p = local;
    for (int i = 0; i < n; i++) {
        unsigned char kind = kinds[i];
        if (n > limit) give_up("too many", n);
        if (rows[0][kind] < 0) {
            give_up("negative", kind);
            p = local + 1;
        }
        p[0] += kind;
        s += rows[1][kind] + p[1];
    }
    return s + local[0];
}

int main(void) {
    long *a = malloc(256 * sizeof *a), *rows[2] = {a, a};
    unsigned char *kinds = malloc(1000);
    for (int i = 0; i < 256; i++) a[i] = i * 7;
    for (int i = 0; i < 1000; i++) kinds[i] = (unsigned char)(i * 31);
    printf("%ld\n", sum(rows, kinds, 1000, 2000));
    fflush(stdout);
    a[3] = -1;
    return (int)sum(rows, kinds, 1000, 2000);
}
