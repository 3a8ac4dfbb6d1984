//# compilers: gcc clang
//# flags: -O2
//# link: -pie -Wl,-z,now | -pie -Wl,-z,lazy | -no-pie -Wl,-z,now | -no-pie -Wl,-z,lazy -Wl,--hash-style=sysv | -pie -Wl,-z,separate-code -Wl,--gc-sections -ffunction-sections | -pie -Wl,-q | -no-pie -Wl,--build-id=none -s | -pie -rdynamic | -pie -static-libgcc
/* Ways of linking: binding now or lazily, hash tables, kept relocations, exported symbols; the program uses what they change. */
#define _GNU_SOURCE
#include "arena.h"
#include <ctype.h>
#include <dlfcn.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static int order[8], count;
__attribute__((constructor)) static void early(void) { order[count++] = 1; }
__attribute__((constructor(150))) static void earlier(void) { order[count++] = 2; }
static void preinit(void) { order[count++] = 3; }
__attribute__((section(".preinit_array"), used)) static void (*const preinit_entry)(void) = preinit;
__attribute__((weak)) int missing(void);
__attribute__((weak)) int replaced(void) { return 5; }
int (*const through_data)(const char *, ...) = printf;

int main(int argc, char **argv) {
    printf("order %d %d %d, weak %d %d\n", order[0], order[1], order[2], missing != 0, replaced());
    through_data("%s %g %d\n", "printf through data", cos(0.5 * argc) + pow(2, 0.5), toupper('q'));
    void *library = dlopen("libm.so.6", RTLD_NOW);
    double (*sine)(double) = (double (*)(double))(library ? dlsym(library, "sin") : 0);
    printf("%d %g\n", sine != 0, sine ? sine(1) : 0.0);
    printf("%d %d %d\n", environ != 0, stdout == *&stdout, getpid() > 0);
    struct tm when;
    time_t zero = 86400 * 365;
    char text[64];
    strftime(text, sizeof text, "%Y-%m-%d", gmtime_r(&zero, &when));
    puts(text);
    mix((uint64_t)strtod("2.5e3", 0));
    report("linked");
    return 0;
}
