//# flags: -O2
//# link: -pie | -static
//# compilers: gcc
//# stderr: ignore
//# uses: blizzard
//# guarded-nodes: 2 3
/* Code that the program makes, and that uses shared memory on coroutines' stacks: what lies below stays. Its accesses are carried out at a signal, whose frame and handler took
 * 4.6 KiB of the stack. */
#include "small_stack.h"

enum { BYTES = 512, EACH = 16 };
/* mov (%rdi), %eax; ret. mov %esi, (%rdi); ret. xor %eax, %eax; rep stosb; ret. xadd %esi, (%rdi) with lock; ret. */
static const char code[4][EACH] = {"\x8b\x07\xc3", "\x89\x37\xc3", "\x31\xc0\xf3\xaa\xc3", "\xf0\x0f\xc1\x37\xc3"};
static char *made;

static long made_at(int number, void *at, int value, long count) {
    return ((long (*)(void *, int, long, long))(made + number * EACH))(at, value, 0, count);
}

__attribute__((noinline)) static void load(void) { sum += made_at(0, shared + page * PAGE_WORDS + 7, 0, 0) & 0xff; }
__attribute__((noinline)) static void store(void) { made_at(1, shared + page * PAGE_WORDS, page, 0); }
__attribute__((noinline)) static void strings(void) { made_at(2, shared + page * PAGE_WORDS, 0, 1300); }
__attribute__((noinline)) static void add(void) { made_at(3, shared + page * PAGE_WORDS + 9, 5, 0); }

int main(void) {
    made = mmap(0, sizeof code, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return 2;
    memcpy(made, code, sizeof code);
    begin();
    check("load", BYTES, load);
    check("store", BYTES, store);
    check("string", BYTES, strings);
    check("atomic addition", BYTES, add);
    return 0;
}
