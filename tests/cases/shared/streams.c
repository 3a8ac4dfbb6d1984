//# flags: -O0 | -O2
//# link: -pie | -static
//# nodes: 2 3
/* Functions of the C library that are the first on this node to touch what another node wrote last: streams that write from, read into, or keep their buffer
 * in shared memory, and what reads and converts strings. What they store there is checked by the other node. Each function has blocks of its own,
 * so nothing has fetched them for it. */
#define _GNU_SOURCE
#include "check.h"
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

enum { AREA = 32768, PART = 1024, LONG = 12000, LINE = 50 };

/* The bytes that the other node leaves: lines of letters, a string in each part. */
static char letter(unsigned i, unsigned seed) {
    if (i % PART == PART - 1) return 0;
    return i % LINE == LINE - 1 ? '\n' : (char)('a' + (i * 7 + seed) % 26);
}
static void fill(volatile char *area, unsigned seed) {
    for (unsigned i = 0; i < AREA; i++) area[i] = letter(i, seed);
}
static int filled(const volatile char *p, unsigned from, unsigned bytes, unsigned seed) {
    for (unsigned i = 0; i < bytes; i++)
        if (p[i] != letter(from + i, seed)) return 0;
    return 1;
}
/* The same in private memory. */
static char *letters(unsigned seed) {
    static char area[AREA];
    fill(area, seed);
    return area;
}

static FILE *file(void) {
    FILE *f = tmpfile();
    if (!f) {
        perror("tmpfile");
        exit(2);
    }
    return f;
}

static void writes(char *area, unsigned seed) {
    static char back[AREA];
    FILE *f = file();
    CHECK(fwrite(area, 1, 30, f) == 30);
    CHECK(fwrite(area + 30, 10, 27, f) == 27);
    CHECK(fwrite(area + 300, 100, LONG / 100, f) == LONG / 100);
    CHECK(fputs(area + 13 * PART, f) >= 0 && fprintf(f, "<%s|%.5s>", area + 14 * PART, area + 15 * PART) == PART + 7);
    CHECK(fputc(area[16 * PART], f) >= 0 && fflush(f) == 0);
    rewind(f);
    CHECK(fread(back, 1, 300 + LONG, f) == 300 + LONG && filled(back, 0, 300 + LONG, seed));
    CHECK(fread(back, 1, PART - 1, f) == PART - 1 && filled(back, 13 * PART, PART - 1, seed));
    CHECK(fread(back, 1, PART + 7, f) == PART + 7 && back[0] == '<' && filled(back + 1, 14 * PART, PART - 1, seed));
    CHECK(back[PART] == '|' && filled(back + PART + 1, 15 * PART, 5, seed) && back[PART + 6] == '>');
    CHECK(fgetc(f) == letter(16 * PART, seed) && fgetc(f) == EOF);
    fclose(f);
}

/* What is read is one seed further than what was there. */
static void reads(char *area, unsigned seed) {
    FILE *f = file();
    CHECK(fwrite(letters(seed + 1), 1, AREA, f) == AREA);
    rewind(f);
    CHECK(fread(area, 1, 30, f) == 30);
    CHECK(fread(area + 30, 3, 90, f) == 90);
    CHECK(fread(area + 300, 1, LONG, f) == LONG);
    CHECK(fseek(f, 13 * PART, SEEK_SET) == 0);
    CHECK(fgets(area + 13 * PART, 20, f) == area + 13 * PART);
    rewind(f);
    CHECK(fscanf(f, "%5s%3c%c", area + 14 * PART, area + 15 * PART, area + 16 * PART) == 3);
    CHECK(fseek(f, 0, SEEK_END) == 0 && fprintf(f, "\n-77 0x1p-3\n") == 12 && fseek(f, -12, SEEK_CUR) == 0);
    CHECK(fscanf(f, "%d%lf", (int *)(area + 17 * PART), (double *)(area + 18 * PART)) == 2);
    fclose(f);
}
static void reads_elsewhere(char *area, unsigned seed) {
    CHECK(filled(area, 0, 300 + LONG, seed + 1) && filled(area + 300 + LONG, 300 + LONG, 13 * PART - 300 - LONG, seed));
    CHECK(filled(area + 13 * PART, 13 * PART, 19, seed + 1) && area[13 * PART + 19] == 0);
    CHECK(filled(area + 13 * PART + 20, 13 * PART + 20, 200, seed));
    CHECK(filled(area + 14 * PART, 0, 5, seed + 1) && area[14 * PART + 5] == 0);
    CHECK(filled(area + 15 * PART, 5, 3, seed + 1) && filled(area + 15 * PART + 3, 15 * PART + 3, 100, seed));
    CHECK(filled(area + 16 * PART, 8, 1, seed + 1) && filled(area + 16 * PART + 1, 16 * PART + 1, 100, seed));
    CHECK(*(int *)(area + 17 * PART) == -77 && *(double *)(area + 18 * PART) == 0.125);
}

/* A stream whose buffer is shared, and one that is nothing but shared memory. */
static void buffers(char *area, unsigned seed) {
    FILE *f = file();
    char line[LINE + 1];
    unsigned lines = 0;
    CHECK(setvbuf(f, area, _IOFBF, 2 * PART) == 0);
    for (unsigned i = 0; i < 300; i++) CHECK(fprintf(f, "%05u %s\n", i + seed, "text") == 11);
    rewind(f);
    for (unsigned n; fscanf(f, "%u text\n", &n) == 1; lines++) CHECK(n == lines + seed);
    CHECK(lines == 300);
    fclose(f);
    CHECK((f = fmemopen(area + 4 * PART, PART - 1, "r")) != 0);
    CHECK(fseek(f, 2 * LINE, SEEK_SET) == 0 && fgets(line, sizeof line, f) == line);
    CHECK(filled(line, 4 * PART + 2 * LINE, strlen(line), seed) && strchr(line, '\n') == line + strlen(line) - 1);
    fclose(f);
    CHECK((f = fmemopen(area + 6 * PART, PART, "w")) != 0);
    CHECK(fprintf(f, "seed %u", seed) > 5 && fclose(f) == 0);
}
static void buffers_elsewhere(char *area, unsigned seed) {
    char expected[32];
    int n = snprintf(expected, sizeof expected, "seed %u", seed);
    CHECK(memcmp(area + 6 * PART, expected, n + 1) == 0 && filled(area + 6 * PART + n + 1, 6 * PART + n + 1, 200, seed));
}

static void strings(char *area, unsigned seed) {
    char *const mine = letters(seed), copy[PART + 8];
    char *part = area;
    CHECK(strlen(part) == PART - 1);
    part += PART;
    CHECK(memcmp(part, mine + PART, PART) == 0);
    part += PART;
    CHECK(strcmp(mine + 2 * PART, part) == 0);
    part += PART;
    CHECK(memchr(part, 0, PART) == part + PART - 1);
    part += PART;
    CHECK(strrchr(part, '\n') == part + (strrchr(mine + 4 * PART, '\n') - (mine + 4 * PART)));
    part += PART;
    CHECK(strcpy(copy, part) == copy && filled(copy, 5 * PART, PART, seed));
    part += PART;
    CHECK(snprintf(copy, sizeof copy, "%s+", part) == PART && filled(copy, 6 * PART, PART - 1, seed));
    part += PART;
    CHECK(strcasecmp(part, mine + 7 * PART) == 0);
    part += PART;
    char *twin = strdup(part);
    CHECK(twin && filled(twin, 8 * PART, PART, seed));
    free(twin);
    part += PART;
    CHECK(memmem(part, PART, mine + 9 * PART + 500, 300) == part + 500);
    part += PART;
    CHECK(strcspn(part, "\n") == strcspn(mine + 10 * PART, "\n"));
    part += PART;
    CHECK(mempcpy(copy, part + 3, 900) == copy + 900 && filled(copy, 11 * PART + 3, 900, seed));
    part += PART;
    CHECK(strpbrk(part, "\t\n") == part + strcspn(mine + 12 * PART, "\n"));
    part += PART;
    CHECK(stpcpy(part + 100, "stored") == part + 106);
    part += PART;
    CHECK(memset(part + 5, 'x', 700) == part + 5);
    part += PART;
    CHECK(memmove(part + 70, part, 600) == part + 70);
    part += PART;
    CHECK(snprintf(part + 1, 300, "%d %s %.2f", -5, "mixed", 2.5) == 13);
    part += PART;
    CHECK(mbstowcs((wchar_t *)part, "wide letters", 40) == 12);
}
static void strings_elsewhere(char *area, unsigned seed) {
    CHECK(strcmp(area + 13 * PART + 100, "stored") == 0 && filled(area + 13 * PART, 13 * PART, 100, seed));
    CHECK(filled(area + 13 * PART + 107, 13 * PART + 107, 500, seed));
    char *part = area + 14 * PART;
    unsigned set = 0;
    while (set < 700 && part[5 + set] == 'x') set++;
    CHECK(set == 700 && filled(part, 14 * PART, 5, seed) && filled(part + 705, 14 * PART + 705, 300, seed));
    part += PART;
    CHECK(filled(part, 15 * PART, 70, seed) && filled(part + 70, 15 * PART, 600, seed) && filled(part + 670, 15 * PART + 670, 300, seed));
    part += PART;
    CHECK(*part == letter(16 * PART, seed) && strcmp(part + 1, "-5 mixed 2.50") == 0);
    part += PART;
    CHECK(wcscmp((wchar_t *)part, L"wide letters") == 0);
}

static int ascending(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Numbers, times and tables; the other node has put the input there. */
static void numbers_fill(volatile char *area, unsigned seed) {
    fill(area, seed);
    snprintf((char *)area, PART, " -%u rest", 123456 + seed);
    snprintf((char *)area + PART, PART, "%u.5e1 rest", seed);
    volatile int *ints = (volatile int *)(area + 2 * PART);
    for (int i = 0; i < 3000; i++) ints[i] = (i * 7919 + (int)seed) % 3001;
    for (int i = 0; i < 700; i++) ((volatile int *)(area + 15 * PART))[i] = i * 3;
    for (int i = 0; i < 300; i++) ((volatile int *)(area + 18 * PART))[i] = 1000 - i;
    *(volatile time_t *)(area + 20 * PART) = 86400 * 365;
}
static void numbers(char *area, unsigned seed) {
    char *end;
    CHECK(strtol(area, &end, 10) == -(long)(123456 + seed) && strcmp(end, " rest") == 0);
    CHECK(strtod(area + PART, &end) == seed * 10.0 + 5 && strcmp(end, " rest") == 0);
    qsort(area + 2 * PART, 3000, sizeof(int), ascending);
    int key = 699, *found = bsearch(&key, area + 15 * PART, 700, sizeof(int), ascending);
    CHECK(found == (int *)(area + 15 * PART) + 233);
    size_t count = 300;
    key = 800;
    CHECK(lfind(&key, area + 18 * PART, &count, sizeof(int), ascending) == area + 18 * PART + 800);
    struct tm *tm = (struct tm *)(area + 21 * PART + 40);
    CHECK(gmtime_r((time_t *)(area + 20 * PART), tm) == tm);
    CHECK(strftime(area + 22 * PART, 100, "%Y-%m-%d", tm) == 10);
    CHECK(strtoul(area + 23 * PART, (char **)(area + 24 * PART), 36) > 0);
}
static void numbers_elsewhere(char *area, unsigned seed) {
    const int *ints = (const int *)(area + 2 * PART);
    unsigned long sum = ints[0], expected = 0;
    for (int i = 1; i < 3000; i++) {
        CHECK(ints[i - 1] <= ints[i]);
        sum += ints[i];
    }
    for (int i = 0; i < 3000; i++) expected += (i * 7919 + (int)seed) % 3001;
    CHECK(sum == expected);
    const struct tm *tm = (const struct tm *)(area + 21 * PART + 40);
    CHECK(tm->tm_year == 71 && tm->tm_mon == 0 && tm->tm_mday == 1 && tm->tm_hour == 0 && tm->tm_yday == 0);
    CHECK(strcmp(area + 22 * PART, "1971-01-01") == 0);
    CHECK(*(char **)(area + 24 * PART) == area + 23 * PART + strcspn(area + 23 * PART, "\n"));
}

static void nothing(char *area, unsigned seed) { (void)area, (void)seed; }

static const struct {
    void (*fill)(volatile char *, unsigned);
    void (*use)(char *, unsigned);
    void (*check)(char *, unsigned);
} steps[] = {
    {fill, writes, nothing},
    {fill, reads, reads_elsewhere},
    {fill, buffers, buffers_elsewhere},
    {fill, strings, strings_elsewhere},
    {numbers_fill, numbers, numbers_elsewhere},
};

int main(void) {
    node = bz_node();
    unsigned nodes = bz_nodes(), next = (node + 1) % nodes;
    if (node == 0) bz_publish(0, bz_alloc(nodes * AREA));
    char *all = bz_lookup(0), *mine = all + node * AREA, *theirs = all + next * AREA;
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
            steps[i].fill(theirs, round * 5 + next);
            bz_barrier();
            steps[i].use(mine, round * 5 + node);
            bz_barrier();
            steps[i].check(theirs, round * 5 + next);
            bz_barrier();
        }
    return failed();
}
