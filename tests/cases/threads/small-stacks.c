//# link: -pthread
//# flags: -O0 | -O2
//# compilers: gcc
/* Threads with the smallest stack that there is, and handlers on a small alternate one, may make any system call. The gate's buffers for paths overran
 * them: a thread crashed at its first malloc, which maps memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void calls(void) {
    char bytes[64];
    void *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(p, 4096, PROT_READ);
    munmap(p, 4096);
    int fd = open("/etc/passwd", O_RDONLY);
    p = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    munmap(p, 4096);
    if (read(fd, bytes, sizeof bytes) <= 0 || close(fd)) _exit(3);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGUSR2, &ignore, 0);
    if (readlink("/proc/self/exe", bytes, sizeof bytes) <= 0) _exit(4);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_BLOCK, &none, 0);
}

static void *thread(void *number) {
    calls();
    char *p = malloc(100000);
    memset(p, 1, 100000);
    free(p);
    pid_t child = vfork();
    if (child == 0) {
        char *args[] = {"true", 0};
        execve("/bin/true", args, 0);
        _exit(1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) _exit(5);
    return number;
}

static volatile int handled;
static void handler(int number) {
    (void)number;
    calls();
    handled++;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    for (long i = 0; i < 3; i++) {
        pthread_t t;
        void *result;
        if (pthread_create(&t, &attributes, thread, (void *)i) || pthread_join(t, &result) || result != (void *)i) return 2;
    }
    enum { BELOW = 1 << 16 };
    size_t bytes = getauxval(AT_MINSIGSTKSZ) + 6144, overrun = 0;
    char *stack = mmap(0, BELOW + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(stack, 0x5a, BELOW);
    stack_t alternate = {.ss_sp = stack + BELOW, .ss_size = bytes};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&alternate, 0) || sigaction(SIGUSR1, &action, 0)) return 6;
    for (int i = 0; i < 10; i++) raise(SIGUSR1);
    for (size_t i = 0; i < BELOW; i++) overrun += stack[i] != 0x5a;
    printf("%d handled, %d overrun\n", handled, overrun != 0);
    return 0;
}
