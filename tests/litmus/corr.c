/* Coherence of reads: x = now  ||  read x; read x. The second read may not be older than the first. */
#define ROLES 2
#include "litmus.h"
static void act(int role, cell *x, cell *y, uint64_t now, uint64_t seen[2]) {
    if (role == 0)
        x->value = now;
    else {
        seen[0] = x->value;
        seen[1] = x->value;
    }
}
static int forbidden(const results *r, const cell *x, const cell *y, uint64_t now) {
    return (r->seen[1][0] == now && r->seen[1][1] != now) || x->value != now;
}
