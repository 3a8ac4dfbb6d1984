/* Barnes on shared memory as it is, the forms `plain` and `transparent`; with -DTUNED the form `tuned`.
 *
 * cc -O2 barnes.c $(blizzard config --cflags) $(blizzard config --libs) -lm -o barnes && blizzard run -n 2 -- ./barnes
 */
#define _GNU_SOURCE
#include "shared.h"

static void make(void) {
    make_tree();
    bodies = shared(3, opt.bodies * sizeof *bodies);
}

static void moved(void) {
    bz_barrier();
#ifdef TUNED
    bz_check_out(bodies, opt.bodies * sizeof *bodies, 0);
#endif
}
