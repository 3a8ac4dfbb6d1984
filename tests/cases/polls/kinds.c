//# flags: -O2 | -O3 -fcf-protection=full
//# link: -pie | -no-pie
//# library: kinds_library.c
//# nodes: 2 3
//# timeout: 60
/* Every way to go round: a direct jump, a conditional one, `loop`, a jump through a register, through memory, through a jump table, `ret` used as a jump, a tail
 * call through a pointer, through the PLT, through the GOT, to a library and back. In each of them a signal that was put off is delivered within a
 * millisecond of processor time, and a peer that wants the word is answered within one. */
#include "blizzard.h"
#include "late.h"

typedef volatile unsigned Word;

#define LOOP(name, body)                                                                                                                                  \
    void name(Word *word);                                                                                                                                \
    __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ": .cfi_startproc\n endbr64\n" body "\n2: ret\n.cfi_endproc\n.size " #name ", .-" #name);
#define UNTIL "cmpl $0, (%rdi)\n jne 2f\n "
LOOP(by_condition, "1: cmpl $0, (%rdi)\n je 1b")
LOOP(by_jump, "1: " UNTIL "jmp 1b")
LOOP(by_long_jump, "1: " UNTIL "jmp 3f\n.skip 200, 0xcc\n3: jmp 1b")
LOOP(by_loop, "1: mov $2, %ecx\n " UNTIL "loop 1b")
LOOP(by_jrcxz, "1: xor %ecx, %ecx\n " UNTIL "jrcxz 1b")
LOOP(by_register, "lea 1f(%rip), %rax\n1: endbr64\n " UNTIL "jmp *%rax")
LOOP(by_memory, "1: endbr64\n " UNTIL "lea 1b(%rip), %rax\n mov %rax, -8(%rsp)\n jmp *-8(%rsp)")
LOOP(by_cell, "1: endbr64\n " UNTIL "jmp *cell_of_loop(%rip)\n.data\n.balign 8\ncell_of_loop: .quad 1b\n.text")
LOOP(by_table, "1: mov (%rdi), %ecx\n cmp $1, %ecx\n ja 2f\n lea 4f(%rip), %rdx\n movslq (%rdx, %rcx, 4), %rax\n add %rdx, %rax\n notrack jmp *%rax\n"
               "3: jmp 1b\n.section .rodata\n.balign 4\n4: .long 3b - 4b, 2f - 4b\n.text")
LOOP(by_ret, "1: endbr64\n " UNTIL "lea 1b(%rip), %rax\n push %rax\n ret")
LOOP(by_call, "1: " UNTIL "call 3f\n jmp 1b\n3: ret")
LOOP(by_plt, UNTIL "jmp through_plt@PLT")
LOOP(by_got, UNTIL "jmp *through_got@GOTPCREL(%rip)")

/* What the compilers make. */
typedef void Loop(Word *);
static Loop *volatile next, *volatile steps[2];
__attribute__((noinline)) static void tail_by_memory(Word *word) {
    if (!*word) next(word);
}
__attribute__((noinline)) static void tail_by_register(Word *word) {
    unsigned seen = *word;
    if (!seen) steps[seen & 1](word);
}
static void by_goto(Word *word) {
    static void *const places[] = {&&again, &&done};
again:
    goto *places[*word & 1];
done:;
}
static void by_switch(Word *word) {
    unsigned sum = 0;
    for (;;) {
        switch (*word + (sum & 3)) {
        case 0: sum += 3; break;
        case 1: if (*word) return; sum += 5; break;
        case 2: sum += 7; break;
        case 3: sum += 11; break;
        case 4: sum += 13; break;
        case 5: return;
        }
        if (*word) return;
        __asm__ volatile("" : "+r"(sum));
    }
}

/* The library's: from there back to here. */
void between(Word *word);
void back_from_library(Word *word) {
    if (!*word) between(word);
}

/* Of the others, in a round of its own: the time of node 0's store, which each of them must let go. Other work of the machine makes rounds late, but not all of many. */
static int64_t answered_in(Loop *loop, Word *word) {
    int64_t least = INT64_MAX;
    for (int k = 0; k < 3 || (k < 100 && least >= LATE_LIMIT_NS); k++) {
        if (bz_node() == 0) *word = 0;
        bz_barrier();
        if (*word) abort(); /* every node has a copy */
        bz_barrier();
        if (bz_node() == 0) {
            usleep(500);
            int64_t begin = late_clock(CLOCK_MONOTONIC);
            *word = 1;
            int64_t took = late_clock(CLOCK_MONOTONIC) - begin;
            least = took < least ? took : least;
        } else {
            loop(word);
        }
        least = bz_reduce_min_i64(least);
    }
    return least;
}

int main(void) {
    static const struct { const char *name; Loop *loop; } KINDS[] = {
#define KIND(loop) {#loop, loop}
        KIND(by_condition), KIND(by_jump), KIND(by_long_jump), KIND(by_loop), KIND(by_jrcxz), KIND(by_register), KIND(by_memory), KIND(by_cell), KIND(by_table), KIND(by_ret),
        KIND(by_call), KIND(by_plt), KIND(by_got), KIND(by_goto), KIND(by_switch),
        KIND(tail_by_memory), KIND(tail_by_register), KIND(back_from_library),
    };
    next = tail_by_memory;
    steps[0] = steps[1] = tail_by_register;
    if (bz_node() == 0) bz_publish(0, bz_alloc(64));
    Word *word = bz_lookup(0);
    for (unsigned i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        int64_t late = bz_reduce_max_i64(late_by(KINDS[i].loop)), answered = answered_in(KINDS[i].loop, word);
        if (bz_node() != 0) continue;
        if (getenv("LATE")) fprintf(stderr, "%s: %ld ns, %ld ns\n", KINDS[i].name, (long)late, (long)answered);
        printf("%s: delivered %s, answered %s\n", KINDS[i].name, late_words(late), late_words(answered));
    }
    return 0;
}
