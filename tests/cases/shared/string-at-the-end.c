//# flags: -O2
//# link: -pie | -static
//# nodes: 2 3
/* Functions of the C library read strings in vectors, several at a time, and so read on behind the last byte, though never into another page. When the string
 * ends where the last allocation ends, there is shared memory there that nobody has allocated; that is no error of the program. */
#include "blizzard.h"
#include <stdio.h>
#include <string.h>

int main(void) {
    unsigned node = bz_node(), nodes = bz_nodes();
    unsigned long wrong = 0;
    for (unsigned slot = 0; slot < 70; slot++) {
        /* An odd number of blocks and an even one. */
        const size_t bytes = slot % 2 ? 64 : 192;
        if (node == slot % nodes) {
            char *text = bz_alloc(bytes);
            memset(text, 'a', bytes - 1);
            bz_publish(slot, text);
        }
        char *text = bz_lookup(slot);
        bz_barrier();
        wrong += strlen(text) != bytes - 1;
        wrong += memchr(text, 0, bytes) != text + bytes - 1 || strchr(text, 'b') != 0 || strrchr(text, 'a') != text + bytes - 2;
        wrong += strcmp(text, text + 1) <= 0 || strnlen(text, 2 * bytes) != bytes - 1;
        bz_barrier();
    }
    wrong = bz_reduce_sum_u64(wrong);
    if (node == 0) printf("wrong %lu\n", wrong);
    return wrong != 0;
}
