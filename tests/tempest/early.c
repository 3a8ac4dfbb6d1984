//# nodes: 2 3
/* A message that comes before main: its handler may call the interface like any other. The functions took the program for one that was not rewritten. */
#include "check.h"
#include <unistd.h>

static volatile int got, answered;
static void answer(TPPI_NodeId src, int size) {
    EXPECT("3.3.3", size == 4 && TPPI_recv_W() == (int)src + 7);
    answered++;
}
static void early(TPPI_NodeId src, int size) {
    EXPECT("3.3.3", size == 4);
    got = TPPI_recv_W();
    TPPI_send_W(src, answer, (int)TPPI_self_address + 7);
}

/* Runs in front of the interface's own constructor, which has the same priority and is linked behind it. Node 0 tells in a slot when it has sent; then the message is in this node's ring. */
__attribute__((constructor(101))) static void wait_for_the_message(void) {
    if (bz_node() != 0) bz_lookup(0);
}

int main(void) {
    int others = (int)TPPI_num_nodes - 1;
    if (TPPI_self_address == 0) {
        for (TPPI_NodeId n = 1; n < TPPI_num_nodes; n++) TPPI_send_W(n, early, (int)n);
        bz_publish(0, (void *)8);
        WAIT_UNTIL(answered == others);
    } else
        EXPECT("2", got == (int)TPPI_self_address);
    return done();
}
