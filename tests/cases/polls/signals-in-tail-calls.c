//# flags: -O2
//# link: -pie | -no-pie | -static
//# nodes: 2
/* A signal that is put off waits for a poll. A cycle of tail calls through a pointer had none, so the handler never ran. Here it is in one program with the C
 * library, too. */
#include "blizzard.h"
#include "late.h"

typedef void Step(volatile unsigned *);
static Step *volatile next;
__attribute__((noinline)) static void step(volatile unsigned *word) {
    if (!*word) {
        next(word);
    }
}

int main(void) {
    next = step;
    int64_t late = bz_reduce_max_i64(late_by(step));
    if (bz_node() == 0) {
        printf("handled %s\n", late_words(late));
    }
    return 0;
}
