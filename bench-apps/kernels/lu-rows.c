/* LU with the matrix in one array. */
#define NAME "lu-rows"
#define CONTIGUOUS 0
#include "lu.h"
