//# flags: -O2 -fcf-protection=full | -O0 -fcf-protection=full
//# link: -pie -Wl,-z,ibt -Wl,-z,shstk | -no-pie -Wl,-z,ibtplt -Wl,-z,shstk -s | -static -Wl,-z,ibt -Wl,-z,shstk
/* Code marked for indirect-branch tracking and the shadow stack: `endbr64` at every target, `notrack` jumps, a PLT of its own form. The
 * output's marks are gone (rewriter/src/write/notes.rs); it computes the same. */
#include "arena.h"
#include <setjmp.h>

typedef uint64_t (*function)(uint64_t);
static uint64_t twice(uint64_t x) { return 2 * x; }
static uint64_t next(uint64_t x) { return x + 1; }
function functions[] = {twice, next, twice};
static jmp_buf back;

__attribute__((noinline)) static uint64_t choose(uint64_t n) {
    switch (n % 9) {
    case 0: return n + 5;
    case 1: return n * 7;
    case 2: return n ^ 0x55;
    case 3: return n - 1;
    case 4: return n << 2;
    case 5: return ~n;
    case 6: return n / 3;
    default: return functions[n % 3](n);
    }
}
__attribute__((noinline)) static void down(int n) {
    if (n == 0)
        longjmp(back, 6);
    down(n - 1);
    mix(1);
}
int main(void) {
    for (uint64_t n = 0; n < 200; n++)
        mix(choose(n) + functions[n % 3](n));
    if (setjmp(back) == 0)
        down(5);
    qsort(functions, 0, sizeof *functions, 0);
    report("marked code");
    return 0;
}
