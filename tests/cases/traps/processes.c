//# flags: -O2
//# link: -pie | -no-pie -s
//# args: one two
/* fork, vfork, exec of itself, pipes, waiting, system(): the runtime stays out of the way in children. */
#define _GNU_SOURCE
#include "arena.h"
#include <sys/wait.h>
#include <unistd.h>
#include <spawn.h>
extern char **environ;

static int ended(pid_t pid) {
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "child")) {
        printf("child %s, variable %s\n", argv[2], getenv("CASE_VARIABLE"));
        return 7;
    }
    setbuf(stdout, 0);
    setenv("CASE_VARIABLE", "value", 1);
    int ends[2];
    if (pipe(ends))
        return 2;
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t sum = 0;
        for (uint64_t i = 0; i < 100000; i++)
            sum = sum * 3 + i;
        if (write(ends[1], &sum, sizeof sum) != sizeof sum)
            _exit(9);
        _exit(3);
    }
    uint64_t sum = 0;
    EXPECT(read(ends[0], &sum, sizeof sum) == sizeof sum, "pipe");
    printf("forked %d %llx\n", ended(pid), (unsigned long long)sum);
    pid = vfork();
    if (pid == 0) {
        execl("/proc/self/exe", argv[0], "child", "by vfork", (char *)0);
        _exit(9);
    }
    printf("vforked %d\n", ended(pid));
    char *arguments[] = {argv[0], "child", "by spawn", 0};
    EXPECT(posix_spawn(&pid, "/proc/self/exe", 0, 0, arguments, environ) == 0, "spawn");
    printf("spawned %d\n", ended(pid));
    printf("system %d\n", WEXITSTATUS(system("exit 5")));
    FILE *command = popen("echo from a shell; echo $CASE_VARIABLE", "r");
    char line[100];
    while (fgets(line, sizeof line, command))
        printf("read %s", line);
    pclose(command);
    pid = fork();
    if (pid == 0)
        abort();
    printf("aborted %d\n", ended(pid));
    return case_failures != 0;
}
