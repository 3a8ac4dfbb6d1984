/* Sends messages to a handler of `library/handlers.c`. */
#include "../check.h"

extern volatile int got;
extern void counted(TPPI_NodeId src, int size);

int main(void) {
    bz_barrier();
    for (TPPI_NodeId n = 0; n < TPPI_num_nodes; n++) TPPI_send_W(n, counted, 5);
    WAIT_UNTIL(got == 5 * (int)TPPI_num_nodes);
    bz_barrier();
    return done();
}
