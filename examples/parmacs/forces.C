#include <math.h>

EXTERN_ENV

#include "nbody.h"

static void Add(long i, double *force, double sign)
{
    long d;

    ALOCK(Global->bodylocks, i)
    for (d = 0; d < 3; d++)
        Global->bodies[i].force[d] += (long long)(sign * force[d] * SCALE);
    AULOCK(Global->bodylocks, i)
}

void Forces(long MyNum)
{
    long i, j, d;

    for (i = MyNum; i < N; i += P) {
        double total[3] = {0.0, 0.0, 0.0};
        for (j = 0; j < i; j++) {
            double apart[3], square = 1e-3, strength;
            for (d = 0; d < 3; d++) {
                apart[d] = Global->bodies[j].place[d] - Global->bodies[i].place[d];
                square += apart[d] * apart[d];
            }
            strength = 1e-4 * Global->bodies[i].mass * Global->bodies[j].mass / (square * sqrt(square));
            for (d = 0; d < 3; d++) {
                apart[d] *= strength;
                total[d] += apart[d];
            }
            /* The reaction of every sixteenth pair only: enough to share the locks of all bodies. */
            if ((i + j) % 16 == 0)
                Add(j, apart, -1.0);
        }
        Add(i, total, 1.0);
    }
}

void Move(long MyNum)
{
    long i, d;
    long long mine = 0;

    for (i = MyNum; i < N; i += P) {
        struct body *body = &Global->bodies[i];
        for (d = 0; d < 3; d++) {
            body->speed[d] += (double)body->force[d] / SCALE / body->mass;
            body->place[d] += body->speed[d];
            mine += body->force[d] >> 20;
            body->force[d] = 0;
        }
    }
    LOCK(Global->energylock)
    Global->energy += mine;
    UNLOCK(Global->energylock)
}
