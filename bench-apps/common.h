/* What all applications have in common, in all forms.
 *
 * An application defines APPLICATION, its name, and includes this. Each form says which run node this is, and how a number of all is summed up.
 */
#ifndef COMMON_H
#define COMMON_H

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- The form ---- */

/* This run node, and how many there are; right when begin_run has returned. */
static unsigned self(void);
static unsigned run_nodes(void);
static void begin_run(int *argc, char ***argv);
static void end_run(void);
/* Of a number on each run node; all call it. */
static uint64_t sum_of_all(uint64_t value);

/* ---- Memory, random numbers, time ---- */

static inline void *need(void *p) {
    if (!p) {
        fprintf(stderr, APPLICATION ": out of memory\n");
        exit(1);
    }
    return p;
}
static inline void *zeros(size_t count, size_t bytes) { return need(calloc(count ? count : 1, bytes)); }

/* A hash of what a random number is for: the finaliser of splitmix64. */
static inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
static inline uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- Options ---- */

/* An option with a number, or with a percentage; it has its default value at first. */
struct setting {
    const char *name, *about;
    uint64_t *number, least, most;
    double *percent;
};

static inline void print_usage(FILE *to, const struct setting *settings, int count) {
    if (self() != 0) return;
    fprintf(to, "usage: " APPLICATION);
    for (int i = 0; i < count; i++) fprintf(to, " [--%s N]", settings[i].name);
    fprintf(to, "\n");
    for (int i = 0; i < count; i++) {
        const struct setting *s = &settings[i];
        fprintf(to, "  --%-15s %s; ", s->name, s->about);
        if (s->percent) fprintf(to, "0 to 100 [%g]\n", *s->percent);
        else fprintf(to, "%" PRIu64 " to %" PRIu64 " [%" PRIu64 "]\n", s->least, s->most, *s->number);
    }
}

static inline void set(const struct setting *s, const char *text) {
    char *end;
    errno = 0;
    if (s->percent) {
        *s->percent = strtod(text, &end);
        if (end != text && !*end && *s->percent >= 0 && *s->percent <= 100) return;
        if (self() == 0) fprintf(stderr, APPLICATION ": --%s %s: not a number from 0 to 100\n", s->name, text);
    } else {
        *s->number = strtoull(text, &end, 10);
        if (*text >= '0' && *text <= '9' && !*end && !errno && *s->number >= s->least && *s->number <= s->most) return;
        if (self() == 0) fprintf(stderr, APPLICATION ": --%s %s: not a number from %" PRIu64 " to %" PRIu64 "\n", s->name, text, s->least, s->most);
    }
    exit(2);
}

static inline void parse(int argc, char **argv, const struct setting *settings, int count) {
    struct option names[10] = {{"help", no_argument, NULL, 'h'}};
    for (int i = 0; i < count; i++) names[i + 1] = (struct option){settings[i].name, required_argument, NULL, i};
    opterr = self() == 0;
    for (int which; (which = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (which >= 0 && which < count) {
            set(&settings[which], optarg);
        } else {
            print_usage(which == 'h' ? stdout : stderr, settings, count);
            exit(which == 'h' ? 0 : 2);
        }
    }
    if (optind == argc) return;
    print_usage(stderr, settings, count);
    exit(2);
}
#define PARSE(argc, argv, settings) parse(argc, argv, settings, (int)(sizeof(settings) / sizeof *(settings)))

/* The two last lines of a run: what it has computed, and for how long. */
static inline void print_results(uint64_t checksum, double time) {
    printf("checksum 0x%016" PRIx64 "\n", checksum);
    fprintf(stderr, APPLICATION ": %.6f s for the iterations on %u nodes\n", time, run_nodes());
}

#endif
