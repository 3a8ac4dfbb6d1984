//# flags: -O1
//# link: -pie | -no-pie
//# with: falls_through.S
/* Functions that fall into the next one, whose new code is aligned: what stands between them was a trap byte once, which ended
 * setcontext and __stack_chk_fail of glibc. */
#include "arena.h"

extern uint64_t falls(uint64_t), through(uint64_t), called_next(uint64_t);

int main(void) {
    uint64_t a = 1;
    for (uint64_t i = 0; i < 50; i++) {
        a = falls(a + i), mix(a);
        a = through(a), mix(a);
        a = called_next(a), mix(a);
    }
    report("falls through");
    return 0;
}
