//# flags: -O0 | -O1 | -O2 | -O3 | -Os | -O2 -fPIC | -O2 -fno-pic
//# link: -no-pie | -no-pie -s
//# matrix: full
/* Dense, sparse, nested and looping switches of 3 to 300 cases, with defaults, holes, negative and 64-bit selectors. */
#define KIND "no-pie"
#include "switches.h"
