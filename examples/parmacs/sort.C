/* sort.C - a radix sort for the PARMACS macros, in the C of 1989: flags that processes wait for (pauses), an array of locks, two barriers.
 *
 * In each pass a process counts the digits of its part of the keys, says so with its flag, and waits for those of all others; the counts give the
 * place of each of its keys.
 *
 *   blizzard parmacs sort.C > sort.c
 *   cc -std=gnu89 -O2 sort.c $(blizzard config --cflags --libs) -o sort
 *   blizzard run -n 4 -- ./sort -p4 [-n KEYS] [-r RADIX] [-m LARGEST]
 */
MAIN_ENV

#define MOST 64
#define MOST_DIGITS 1024

struct part {
    long count[MOST_DIGITS];
    PAUSEDEC(counted)
};
struct shared {
    LOCKDEC(numbers)
    long next;
    ALOCKDEC(histogram, MOST)
    long passes_over[MOST];
    BARDEC(written)
    BARDEC(cleared)
    struct part part[MOST];
} *all;
long *keys[2];
long processes = 1, n = 20000, radix = 256, largest = 1000000, passes;

void sorter();

long key_of(i)
long i;
{
    unsigned long x = (unsigned long) i * 0x9e3779b97f4a7c15ul;
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93ul;
    return (long) ((x ^ x >> 32) % (unsigned long) largest);
}

int main(argc, argv)
int argc;
char **argv;
{
    long i, wrong = 0, sum = 0, option;
    unsigned long began, ended;
    while ((option = getopt(argc, argv, "p:n:r:m:")) != -1) {
        if (option == 'p') processes = atol(optarg);
        else if (option == 'n') n = atol(optarg);
        else if (option == 'r') radix = atol(optarg);
        else if (option == 'm') largest = atol(optarg);
        else return 2;
    }
    if (processes < 1 || processes > MOST || radix < 2 || radix > MOST_DIGITS || n < 1 || largest < 1) return 2;
    MAIN_INITENV(,100000000)
    CLOCK(began)
    all = (struct shared *) G_MALLOC(sizeof(struct shared));
    keys[0] = (long *) G_MALLOC(n * sizeof(long));
    keys[1] = (long *) G_MALLOC(n * sizeof(long));
    LOCKINIT(all->numbers)
    ALOCKINIT(all->histogram, MOST)
    BARINIT(all->written)
    BARINIT(all->cleared)
    for (i = 0; i < processes; i++) { PAUSEINIT(all->part[i].counted) }
    for (i = largest - 1; i > 0; i /= radix) passes++;
    for (i = 1; i < processes; i++) { CREATE(sorter) }
    sorter();
    WAIT_FOR_END(processes - 1)
    CLOCK(ended)
    for (i = 0; i < n; i++) {
        sum += keys[passes & 1][i] * (i % 1009);
        wrong += i > 0 && keys[passes & 1][i - 1] > keys[passes & 1][i];
    }
    for (i = 0; i < MOST; i++) if (all->passes_over[i] != (i < processes ? passes : 0)) wrong++;
    if (ended < began) wrong++;
    printf("%ld keys in %ld passes: %ld to %ld, sum %ld, %ld wrong\n", n, passes, keys[passes & 1][0], keys[passes & 1][n - 1], sum, wrong);
    MAIN_END
}

void sorter()
{
    long me, i, p, pass, digit, first, end, before, unit = 1;
    static long place[MOST_DIGITS];
    long *from, *to;
    struct part *mine;
    LOCK(all->numbers)
    me = all->next++;
    UNLOCK(all->numbers)
    mine = &all->part[me];
    first = n * me / processes;
    end = n * (me + 1) / processes;
    for (i = first; i < end; i++) keys[0][i] = key_of(i);
    for (pass = 0; pass < passes; pass++) {
        from = keys[pass & 1];
        to = keys[~pass & 1];
        for (digit = 0; digit < radix; digit++) mine->count[digit] = 0;
        for (i = first; i < end; i++) mine->count[from[i] / unit % radix]++;
        SETPAUSE(mine->counted)
        before = 0;
        for (p = 0; p < processes; p++) { WAITPAUSE(all->part[p].counted) }
        for (digit = 0; digit < radix; digit++) {
            for (p = 0; p < processes; p++) {
                if (p == me) place[digit] = before;
                before += all->part[p].count[digit];
            }
        }
        for (i = first; i < end; i++) to[place[from[i] / unit % radix]++] = from[i];
        ALOCK(all->histogram, (me + pass) % processes)
        all->passes_over[(me + pass) % processes]++;
        AULOCK(all->histogram, (me + pass) % processes)
        BARRIER(all->written, processes)
        CLEARPAUSE(mine->counted)
        BARRIER(all->cleared, processes)
        unit *= radix;
    }
}
