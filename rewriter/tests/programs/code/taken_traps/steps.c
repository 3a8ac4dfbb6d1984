/* Enters a function in its middle, where nobody foresees it, with random registers, flags and red zone: by single steps, so that a signal comes at each instruction,
 * and with a timer's signals. What the function finds must be what it was given. SHAPE: the instructions in its middle.
 * Arguments: seed, rounds, and one more if flags count, too. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { FLAGS = 15, RED_ZONE, PLACES };
/* rax, rbx, rcx, rdx, rsi, rdi, rbp, r8 to r15; flags; a word of the red zone. */
unsigned long given[PLACES], seen[PLACES];
void *target;
extern char held[];
void enter(void);

#define ALL(MOVE)                                                                                                   \
    MOVE("rax", "0") MOVE("rbx", "8") MOVE("rcx", "16") MOVE("rdx", "24") MOVE("rsi", "32") MOVE("rdi", "40")       \
    MOVE("rbp", "48") MOVE("r8", "56") MOVE("r9", "64") MOVE("r10", "72") MOVE("r11", "80") MOVE("r12", "88")       \
    MOVE("r13", "96") MOVE("r14", "104") MOVE("r15", "112")
#define STORE(name, at) " mov %" name ", seen+" at "(%rip)\n"
#define LOAD(name, at) " mov given+" at "(%rip), %" name "\n"

__asm__(".text\n.balign 16\n.globl held\n.type held, @function\nheld: .cfi_startproc\n lea 256(%rdi), %rax\n"
        SHAPE ALL(STORE)
        " mov -24(%rsp), %rax\n mov %rax, seen+128(%rip)\n pushfq\n popq seen+120(%rip)\n ret\n.cfi_endproc\n.size held, .-held\n"
        ".globl enter\n.type enter, @function\nenter: .cfi_startproc\n"
        " push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n sub $8, %rsp\n"
        " mov given+128(%rip), %rax\n mov %rax, -32(%rsp)\n pushq given+120(%rip)\n popfq\n"
        ALL(LOAD) " call *target(%rip)\n"
        " pushq $2\n popfq\n add $8, %rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n"
        ".cfi_endproc\n.size enter, .-enter\n");

volatile long middle = 7;
static volatile unsigned long steps, sent, ticks;
static unsigned long state;

static void on_step(int signal, siginfo_t *info, void *context) {
    steps++;
    sent += info->si_code <= 0;
}
static void on_tick(int signal) { ticks++; }

static unsigned long draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

int main(int argc, char **argv) {
    struct sigaction step = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO}, tick = {.sa_handler = on_tick};
    struct itimerval often = {{0, 200}, {0, 200}};
    state = strtoul(argv[1], 0, 10) * 2 + 1;
    long rounds = atol(argv[2]);
    target = held + middle;
    sigaction(SIGTRAP, &step, 0);
    sigaction(SIGALRM, &tick, 0);
    setitimer(ITIMER_REAL, &often, 0);
    for (long round = 0; round < rounds; round++) {
        for (int k = 0; k < PLACES; k++) given[k] = draw();
        /* The arithmetic flags; and single steps from shortly before the trap byte becomes a jump on. */
        given[FLAGS] = (given[FLAGS] & 0x8d5) | 0x202 | (round >= 90 && round % 4 ? 0x100 : 0);
        enter();
        for (int k = 0; k < PLACES; k++)
            if (seen[k] != given[k] && (k != FLAGS || argc > 3)) {
                printf("round %ld: place %d holds %lx, not %lx\n", round, k, seen[k], given[k]);
                return 1;
            }
    }
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, 0);
    if (steps < rounds || !ticks || sent) printf("%lu steps, %lu signals of the timer, %lu sent\n", steps, ticks, sent);
    else puts("right");
    return 0;
}
