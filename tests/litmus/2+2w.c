/* Two writers of two variables: x = now - 1; y = now  ||  y = now - 1; x = now. The end may not be now - 1 in both. */
#define ROLES 2
#include "litmus.h"
static void act(int role, cell *x, cell *y, uint64_t now, uint64_t seen[2]) {
    cell *first = role ? y : x, *then = role ? x : y;
    first->value = now - 1;
    then->value = now;
    seen[0] = seen[1] = now;
}
static int forbidden(const results *r, const cell *x, const cell *y, uint64_t now) {
    uint64_t a = x->value, b = y->value;
    return (a == now - 1 && b == now - 1) || a < now - 1 || a > now || b < now - 1 || b > now;
}
