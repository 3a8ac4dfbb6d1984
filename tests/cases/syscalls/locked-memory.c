//# uses: blizzard
//# flags: -O0 | -O2
//# compilers: gcc
//# nodes: 2
/* A program that locks its memory: the kernel would have filled terabytes of tags and of segment with zeros first, and the run hung until the machine had
 * no memory left. Whether it may lock as much is up to the user's limits; it goes on in either case, as such programs do. */
#include "blizzard.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
    (void)!mlockall(MCL_CURRENT | MCL_FUTURE);
    char *p = malloc(1 << 20);
    memset(p, 7, 1 << 20);
    int first = p[12345];
    munlockall();
    int refused = mlockall(0x1000);
    if (bz_node() == 0) printf("%d %d\n", first, refused);
    return 0;
}
