//# compilers: gcc
//# flags: -O2 -mfsgsbase
//# link: -pie
//# refuse: moves the base of %fs or %gs
/* A check forms an address with a base of zero, so an instruction that moves the base of %gs is refused with its address. */
#include <stdint.h>
#include <stdio.h>

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 99) {
        __asm__ volatile("wrgsbase %0" ::"r"((uint64_t)0));
    }
    puts("not moved");
    return 0;
}
