/* LU with blocks in pieces of their own. */
#define NAME "lu-contiguous"
#define CONTIGUOUS 1
#include "lu.h"
