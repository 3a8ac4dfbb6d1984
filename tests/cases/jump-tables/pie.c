//# flags: -O0 | -O1 | -O2 | -O3 | -Os | -O2 -fno-omit-frame-pointer | -O2 -fcf-protection=full
//# link: -pie | -pie -s
//# matrix: full
/* The switches of dense.c in position-independent executables. */
#define KIND "pie"
#include "switches.h"
