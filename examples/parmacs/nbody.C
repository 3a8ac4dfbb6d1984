/* Bodies that attract each other, written for the PARMACS macros in the style of the SPLASH programs.
 *
 *   for f in nbody.C forces.C; do blizzard parmacs $f > ${f%.C}.c; done; blizzard parmacs nbody.H > nbody.h
 *   cc -O2 -I. nbody.c forces.c $(blizzard config --cflags --libs) -lm -o nbody && blizzard run -n 4 -- ./nbody -p4
 *
 * Each process computes the forces of its share of the bodies and adds some of them to others under their locks. The answer has
 * the same digits for any number of processes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

MAIN_ENV

#include "nbody.h"

struct GlobalMemory *Global;
long P = 1, N = 96, Steps = 4;
static unsigned long Seed = 12345; /* private */

static double Random()
{
    Seed = Seed * 6364136223846793005ul + 1442695040888963407ul;
    return (double)(Seed >> 11) / 9007199254740992.0;
}

void SlaveStart()
{
    long MyNum, step;

    LOCK(Global->idlock)
    MyNum = Global->id++;
    UNLOCK(Global->idlock)

    for (step = 0; step < Steps; step++) {
        Forces(MyNum);
        BARRIER(Global->step, P)
        Move(MyNum);
        BARRIER(Global->step, P)
    }
}

int main(int argc, char *argv[])
{
    int c;
    long i, d;
    double sum = 0.0;

    while ((c = getopt(argc, argv, "p:n:t:")) != -1) {
        switch (c) {
        case 'p': P = atoi(optarg); break;
        case 'n': N = atoi(optarg); break;
        case 't': Steps = atoi(optarg); break;
        default: fprintf(stderr, "usage: nbody [-pP] [-nN] [-tSTEPS]\n"); exit(2);
        }
    }
    if (P < 1 || N < 1 || N > MAXBODIES) {
        fprintf(stderr, "nbody: P at least 1, N from 1 to %d\n", MAXBODIES);
        exit(2);
    }

    MAIN_INITENV(P, 4000000)
    Global = (struct GlobalMemory *) G_MALLOC(sizeof(struct GlobalMemory));
    LOCKINIT(Global->idlock);
    LOCKINIT(Global->energylock);
    ALOCKINIT(Global->bodylocks, N);
    BARINIT(Global->step);
    for (i = 0; i < N; i++) {
        Global->bodies[i].mass = 0.5 + Random();
        for (d = 0; d < 3; d++) {
            Global->bodies[i].place[d] = Random();
            Global->bodies[i].speed[d] = 0.0;
        }
    }
    printf("%ld bodies, %ld steps", N, Steps);

    CREATE(SlaveStart, P)
    WAIT_FOR_END(P)

    for (i = 0; i < N; i++)
        for (d = 0; d < 3; d++)
            sum += Global->bodies[i].place[d] * (i + d + 1);
    printf(": places %.12f, work %lld\n", sum, Global->energy);
    MAIN_END
}
