//# compilers: musl-gcc
//# flags: -O2 | -O0
//# link: -static -no-pie | -static-pie | -static -s
/* Another C library: its start-up code, its threads, no frames for most of its code. */
#include "arena.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static _Thread_local int per_thread = 5;
static void *thread(void *argument) {
    per_thread += (int)(intptr_t)argument;
    char *p = malloc(1000);
    snprintf(p, 1000, "thread %d %.3f", per_thread, sqrt(per_thread));
    return p;
}
static jmp_buf back;
static void caught(int number) { longjmp(back, number); }
static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(int argc, char **argv) {
    pthread_t threads[3];
    for (intptr_t i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, thread, (void *)i);
    for (int i = 0; i < 3; i++) {
        void *text;
        pthread_join(threads[i], &text);
        puts(text);
    }
    int numbers[] = {5, 3, 9, 1, 7};
    qsort(numbers, 5, sizeof *numbers, order);
    printf("%d %d %d\n", numbers[0], numbers[2], numbers[4]);
    signal(SIGUSR1, caught);
    if (!setjmp(back))
        raise(SIGUSR1);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(4);
    int status;
    waitpid(pid, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    char text[200];
    for (int i = 0; i < 100; i++) {
        memset(text, 'a' + i % 26, sizeof text - 1);
        text[199] = 0;
        mix(strlen(text) + (uint64_t)text[i]);
        mix((uint64_t)strtod("1.5e3", 0) + (uint64_t)pow(2, i % 20));
    }
    report("musl");
    return 0;
}
