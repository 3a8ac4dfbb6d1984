/* Message passing: x = now; y = now  ||  read y; read x. Who sees y must see x. */
#define ROLES 2
#include "litmus.h"
static void act(int role, cell *x, cell *y, uint64_t now, uint64_t seen[2]) {
    if (role == 0) {
        x->value = now;
        y->value = now;
    } else {
        seen[0] = y->value;
        seen[1] = x->value;
    }
}
static int forbidden(const results *r, const cell *x, const cell *y, uint64_t now) {
    /* After the barrier both stores are there for all. */
    return (r->seen[1][0] == now && r->seen[1][1] != now) || x->value != now || y->value != now;
}
