/* What the workloads of `blizzard stress` and `blizzard bench` have in common: arguments of the form name=value, random numbers. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#define _GNU_SOURCE

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int argument_count;
static char **argument_list;

/* The value of an argument, or nothing. */
static const char *find_argument(const char *name) {
    size_t length = strlen(name);
    for (int i = 1; i < argument_count; i++)
        if (!strncmp(argument_list[i], name, length) && argument_list[i][length] == '=')
            return argument_list[i] + length + 1;
    return 0;
}

static const char *text_argument(const char *name) {
    const char *value = find_argument(name);
    if (!value) {
        fprintf(stderr, "workload: the argument %s=... is missing\n", name);
        exit(3);
    }
    return value;
}

static uint64_t argument(const char *name) { return strtoull(text_argument(name), 0, 0); }

/* Marsaglia's xorshift; the state is not zero. */
static uint64_t random_state;
static inline uint64_t next_random(void) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return random_state;
}

#endif
