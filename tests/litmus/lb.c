/* Load buffering: read x; y = now  ||  read y; x = now. Not both reads may see the other's later store. */
#define ROLES 2
#include "litmus.h"
static void act(int role, cell *x, cell *y, uint64_t now, uint64_t seen[2]) {
    cell *first = role ? y : x, *then = role ? x : y;
    seen[0] = first->value;
    then->value = now;
}
static int forbidden(const results *r, const cell *x, const cell *y, uint64_t now) {
    return (r->seen[0][0] == now && r->seen[1][0] == now) || x->value != now || y->value != now;
}
