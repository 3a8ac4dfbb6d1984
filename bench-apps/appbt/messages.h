/* What the forms of appbt with messages have in common: private memory, in which the neighbours' values come to where shared memory would have them. */
#ifndef APPBT_MESSAGES_H
#define APPBT_MESSAGES_H

#include "appbt.h"

/* By dimension, and whether it is the part above: own values at that side, and the neighbour's, packed. */
static double *sides_out[DIMENSIONS][2], *sides_in[DIMENSIONS][2];

/* The run node of the part below or above: -1 or 1. */
static unsigned next_to(int d, int by) {
    int weight = d == X ? 1 : d == Y ? parts[X] : parts[X] * parts[Y];
    return (unsigned)((int)self() + by * weight);
}
static int has_next(int d, int above) { return above ? has_above(d) : has_below(d); }
static size_t lines_of(int d) { return (size_t)(to[row_of[d]] - from[row_of[d]]) * (size_t)(to[line_of[d]] - from[line_of[d]]); }
static size_t side_doubles(int d) { return lines_of(d) * VALUES; }
static size_t own_row_doubles(int way, int d) { return (size_t)(to[line_of[d]] - from[line_of[d]]) * crossing[way]; }
/* What crosses to this run node, or from it, with the lines of a row. */
static double *own_row(int way, int d, int is_out, int row) {
    return crossing_at(way, d, place[d] - ((way == UP) != is_out), row, from[line_of[d]]);
}

static void make_private(void) {
    values = zeros(cells() * VALUES, sizeof *values);
    for (int d = X; d < DIMENSIONS; d++) {
        for (int way = UP; way < WAYS; way++) crossings[way][d] = zeros(crossing_doubles(way, d), sizeof(double));
        for (int above = 0; above < 2; above++) {
            sides_out[d][above] = zeros(side_doubles(d), sizeof(double));
            sides_in[d][above] = zeros(side_doubles(d), sizeof(double));
        }
    }
}

/* The cells at a side, own ones or the neighbour's, to or from packed ones. */
static void copy_side(int d, int above, int own, double *packed, int pack) {
    int at = above ? to[d] - own : from[d] - !own;
    for (int row = from[row_of[d]]; row < to[row_of[d]]; row++)
        for (int line = from[line_of[d]]; line < to[line_of[d]]; line++, packed += VALUES) {
            size_t cell = (size_t)at * stride(d) + (size_t)row * stride(row_of[d]) + (size_t)line * stride(line_of[d]);
            if (pack) memcpy(packed, values + cell * VALUES, VALUES * sizeof *values);
            else memcpy(values + cell * VALUES, packed, VALUES * sizeof *values);
        }
}

#endif
