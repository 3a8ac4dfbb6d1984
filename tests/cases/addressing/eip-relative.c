//# flags: -O2
//# link: -no-pie | -no-pie -s
//# with: eip_relative.S
/* Operands relative to eip: the address is cut to 32 bits, which changes nothing where a program lies at fixed addresses. */
#include "arena.h"

extern uint64_t load(void), add_to(uint64_t), through(void), cut(void);
extern void store(uint64_t);

int main(void) {
    for (uint64_t n = 0; n < 4; n++) {
        store(n * 0x100000001);
        printf("%llx %llx", (unsigned long long)load(), (unsigned long long)add_to(n));
        printf(" %llx %llx\n", (unsigned long long)through(), (unsigned long long)cut());
    }
    return 0;
}
