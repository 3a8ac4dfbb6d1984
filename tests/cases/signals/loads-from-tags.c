//# uses: blizzard
//# flags: -O0 | -O2
//# link: -pie | -no-pie
//# nodes: 1 2 3
//# checks: all
/* fault-table.c where the tag table lies, loads included: they read a tag, in place of the signal that the plain program gets. The check of such an access
 * notices where it leads. */
#define LOADS_FROM_TAGS 1
#include "fault-table.c"
