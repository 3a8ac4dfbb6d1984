/* Cholesky factorisation of a dense matrix, written for the PARMACS macros in the style of the SPLASH programs.
 *
 *   blizzard parmacs cholesky.C > cholesky.c
 *   cc -O2 cholesky.c $(blizzard config --cflags --libs) -lm -o cholesky && blizzard run -n 4 -- ./cholesky -p4
 *
 * Column j is computed by process j mod P as soon as the columns before it are ready, which their pause variables tell. The
 * answer has the same digits for any number of processes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

MAIN_ENV

#define MAXCOLS 512
#define DEFAULT_N 160

struct GlobalMemory {
    LOCKDEC(idlock)
    BARDEC(start)
    GSDEC(rows)
    PAUSEDEC(ready, MAXCOLS)
    long id;
    unsigned long began, ended;
    double column[MAXCOLS][MAXCOLS]; /* column[j][i] is row i of column j */
} *Global;

long P = 1, N = DEFAULT_N, dostats;
double Diagonal; /* private: each process has the value that main gave it */

void SlaveStart();
void Fill();
void Factor();
double Check();

int main(argc, argv)
int argc;
char *argv[];
{
    int c;
    long i;

    while ((c = getopt(argc, argv, "p:n:s")) != -1) {
        switch (c) {
        case 'p': P = atoi(optarg); break;
        case 'n': N = atoi(optarg); break;
        case 's': dostats = 1; break;
        default: fprintf(stderr, "usage: cholesky [-pP] [-nN] [-s]\n"); exit(2);
        }
    }
    if (P < 1 || N < 1 || N > MAXCOLS) {
        fprintf(stderr, "cholesky: P at least 1, N from 1 to %d\n", MAXCOLS);
        exit(2);
    }
    printf("%ld columns\n", N);

    MAIN_INITENV(, sizeof(struct GlobalMemory))
    Global = (struct GlobalMemory *) G_MALLOC(sizeof(struct GlobalMemory))
    LOCKINIT(Global->idlock)
    BARINIT(Global->start)
    GSINIT(Global->rows)
    PAUSEINIT(Global->ready, N)
    Global->id = 0;
    Diagonal = 2.0 * N;

    CLOCK(Global->began)
    for (i = 1; i < P; i++) {
        CREATE(SlaveStart)
    }
    SlaveStart();
    WAIT_FOR_END(P - 1)
    CLOCK(Global->ended)

    printf("last pivot %.15e, error %.3e\n", Global->column[N - 1][N - 1], Check());
    if (dostats)
        fprintf(stderr, "%lu microseconds\n", Global->ended - Global->began);
    G_FREE(Global)
    MAIN_END
}

void SlaveStart()
{
    long MyNum;

    LOCK(Global->idlock)
    MyNum = Global->id;
    Global->id++;
    UNLOCK(Global->idlock)

    Fill();
    BARRIER(Global->start, P)
    Factor(MyNum);
}

double Element(i, j)
long i, j;
{
    return i == j ? Diagonal : 1.0 / (1.0 + labs(i - j));
}

/* Whoever comes next takes the next column. */
void Fill()
{
    long i, j;

    GETSUB(Global->rows, j, N - 1, P)
    while (j >= 0) {
        for (i = j; i < N; i++)
            Global->column[j][i] = Element(i, j);
        GETSUB(Global->rows, j, N - 1, P)
    }
}

void Factor(MyNum)
long MyNum;
{
    long i, j, k;
    double factor, pivot;

    for (j = MyNum; j < N; j += P) {
        double *mine = Global->column[j];
        for (k = 0; k < j; k++) {
            double *other = Global->column[k];
            WAITPAUSE(Global->ready[k])
            factor = other[j];
            for (i = j; i < N; i++)
                mine[i] -= factor * other[i];
        }
        pivot = sqrt(mine[j]);
        for (i = j; i < N; i++)
            mine[i] /= pivot;
        SETPAUSE(Global->ready[j])
    }
}

/* The largest difference of the product from the matrix. */
double Check()
{
    long i, j, k;
    double worst = 0.0;

    for (i = 0; i < N; i++) {
        for (j = 0; j <= i; j++) {
            double sum = 0.0;
            for (k = 0; k <= j; k++)
                sum += Global->column[k][i] * Global->column[k][j];
            sum = fabs(sum - Element(i, j));
            if (sum > worst)
                worst = sum;
        }
    }
    return worst;
}
