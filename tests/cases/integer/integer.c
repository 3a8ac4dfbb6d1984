//# flags: -O2
//# link: -pie | -no-pie -s
//# with: integer_pieces.S ../include/lab.S
//# shared: 2
/* Every integer instruction with a memory operand, in each operand size, with all registers and flags live before and after:
 * arithmetic with and without carry, shifts and rotates through carry, multiplication, division, conditional moves and sets,
 * conversions, stack and control transfers through memory. */
#include "zoo_main.h"
