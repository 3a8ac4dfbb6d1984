/* zoo.h, and a program that runs each piece of the table once. */
#include "zoo.h"

int main(void) {
    arena_begin(65536);
    zoo_run(1);
    return case_result();
}
