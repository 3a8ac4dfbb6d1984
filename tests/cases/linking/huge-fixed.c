//# compilers: gcc
//# flags: -O2 -mcmodel=medium -fno-pie
//# link: -no-pie
//# refuse: behind 2 GiB is the tag table
/* At a fixed address more than 2 GiB of static data would lie where the tags are. */
#include <stdio.h>
static char array[3ul << 30];

int main(int argc, char **argv) {
    (void)argv;
    array[(unsigned long)argc << 30] = 1;
    printf("%d\n", array[1ul << 30]);
    return 0;
}
