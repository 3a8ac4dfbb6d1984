/* Store buffering: x = now; read y  ||  y = now; read x. Not both reads may miss the other's store. */
#define ROLES 2
#include "litmus.h"
static void act(int role, cell *x, cell *y, uint64_t now, uint64_t seen[2]) {
    cell *mine = role ? y : x, *other = role ? x : y;
    mine->value = now;
    seen[0] = other->value;
}
static int forbidden(const results *r, const cell *x, const cell *y, uint64_t now) {
    return r->seen[0][0] != now && r->seen[1][0] != now;
}
