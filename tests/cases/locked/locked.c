//# flags: -O2
//# link: -pie | -no-pie -s
//# with: locked_pieces.S ../include/lab.S
//# shared: 2
/* Every instruction that may carry a lock prefix, and those that lock without one. */
#include "zoo.h"

int main(void) {
    arena_begin(65536);
    zoo_run(1);
    return case_result();
}
