/* Independent reads of independent writes: x = now  ||  y = now  ||  read x; read y  ||  read y; read x. The readers may not
 * disagree about which store came first. */
#define ROLES 4
#include "litmus.h"
static void act(int role, cell *x, cell *y, uint64_t now, uint64_t seen[2]) {
    switch (role) {
    case 0: x->value = now; break;
    case 1: y->value = now; break;
    case 2: seen[0] = x->value; seen[1] = y->value; break;
    default: seen[0] = y->value; seen[1] = x->value;
    }
}
static int forbidden(const results *r, const cell *x, const cell *y, uint64_t now) {
    return (r->seen[2][0] == now && r->seen[2][1] != now && r->seen[3][0] == now && r->seen[3][1] != now) || x->value != now ||
           y->value != now;
}
