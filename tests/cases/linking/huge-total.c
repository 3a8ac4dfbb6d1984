//# compilers: gcc
//# flags: -O2 -mcmodel=medium -fpie
//# link: -pie
//# refuse: at most 66 GiB are supported
/* Static data have an end, too. */
static char array[70ul << 30];

int main(int argc, char **argv) {
    (void)argv;
    array[(unsigned long)argc << 30] = 1;
    return array[1ul << 30] - 1;
}
