//# flags: -O2
//# link: -static | -static-pie | -static -s
/* Static programs: no dynamic loader; IFUNC relocations are applied by the program's own start-up code. */
#include "arena.h"
#include <math.h>

static _Thread_local int per_thread = 5;
int main(int argc, char **argv) {
    char text[100];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    printf("%zu %d %g\n", strlen(text), per_thread + argc, sqrt(2.0 * argc));
    void *p = malloc(1000);
    memcpy(p, text, 100);
    mix_bytes(p, 100);
    report("static");
    return 0;
}
