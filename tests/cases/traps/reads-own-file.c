//# flags: -O1
//# link: -pie | -no-pie
/* The program maps its own file to read it, as symbolisers of backtraces do. The runtime must not take that for a module which has been
 * loaded: it would forget the modules behind, and the next trap byte would end the program. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* A target that nothing names: reached by arithmetic on a label, through a trap. */
__attribute__((noinline)) static long hop(long n) {
    long result;
    __asm__ volatile("lea 1f(%%rip), %%rdx\n\t"
                     "add %1, %%rdx\n\t"
                     "jmp *%%rdx\n"
                     "1: nop\n\t"
                     "inc %0\n\t"
                     "inc %0\n\t"
                     "inc %0"
                     : "=a"(result)
                     : "r"(n), "0"(0L)
                     : "rdx", "memory", "cc");
    return result;
}

int main(void) {
    long sum = hop(1);
    for (int times = 0; times < 40; times++) {
        int fd = open("/proc/self/exe", O_RDONLY);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) != 0) return 1;
        /* Below what is mapped already, more and more of it. */
        void *file = mmap(0, st.st_size >> (times % 4), PROT_READ, MAP_PRIVATE, fd, 0);
        if (file == MAP_FAILED || memcmp(file, "\177ELF", 4) != 0) return 2;
        sum = sum * 3 + hop(1) + hop(4) + hop(7);
    }
    printf("%ld\n", sum);
    return 0;
}
