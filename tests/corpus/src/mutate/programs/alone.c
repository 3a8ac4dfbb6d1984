/* No C library: the runtime, the code and the data of a static program are all that there is. */
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static unsigned table[64];
static char line[32];

__attribute__((noinline)) static unsigned next(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

__attribute__((noinline)) static int weigh(int kind, unsigned *p) {
    switch (kind) {
    case 0: return *p & 7;
    case 1: return *p >> 3;
    case 2: return (*p ^= 5);
    case 3: return ++*p;
    case 4: return *p * 3;
    case 5: return p[1];
    default: return 1;
    }
}

__attribute__((used)) void run(void) {
    unsigned state = 1, sum = 0;
    for (int i = 0; i < 63; i++)
        table[i] = next(&state);
    for (int i = 0; i < 63; i++)
        sum += weigh(table[i] % 7, &table[i]);
    int at = sizeof line;
    line[--at] = '\n';
    do
        line[--at] = '0' + sum % 10;
    while (sum /= 10);
    call(1, 1, (long)(line + at), sizeof line - at);
    call(231, 0, 0, 0);
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\n and $-16, %rsp\n call run\n hlt\n");
