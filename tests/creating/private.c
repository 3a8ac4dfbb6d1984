/* Created nodes begin with node 0's private data: a global, the heap, the stack, a thread-local variable, a descriptor with its
 * position, the working directory, a stream with text in its buffer. Each is created with other values than the one before. With an argument, node 0 waits for
 * the first node, and sleeps, between the creations. */
#include <blizzard.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, DATA = 100000 };
struct shared {
    volatile uint64_t seen[MOST], between[MOST], go;
    volatile char letter[MOST];
    double data[DATA];
};
static struct shared *all;
static unsigned which;
static __thread unsigned thread_local_which;
static int *heap, *on_stack, letters;
static char folder[4096];

static void node(void) {
    char c = 0, here[4096];
    if (read(letters, &c, 1) != 1) abort();
    int right = heap[5] == (int)which + 7 && *on_stack == (int)which + 9 && thread_local_which == which && bz_node() == which &&
                getcwd(here, sizeof here) && strcmp(here, folder) == 0 && all->between[which] == 0;
    for (unsigned i = which; i < DATA; i += 500) right = right && all->data[i] == i;
    heap[5] = *on_stack = 0; /* nobody else sees this */
    all->letter[which] = c;
    all->seen[which] = right ? 100 + which : 1;
    while (!all->go) {
    }
    if (all->between[which] != which) abort();
}

int main(int argc, char **argv) {
    (void)argv;
    int local = 9, late = argc > 1;
    unsigned nodes = bz_nodes();
    FILE *file = tmpfile();
    all = bz_alloc(sizeof *all);
    heap = malloc(1 << 20);
    on_stack = &local;
    if (!all || !heap || !file || !getcwd(folder, sizeof folder)) return 2;
    letters = fileno(file);
    for (int i = 0; i < MOST; i++) dprintf(letters, "%c", 'a' + i % 26);
    lseek(letters, 0, SEEK_SET);
    for (unsigned i = 0; i < DATA; i++) all->data[i] = i;
    printf("written once");
    for (which = 1; which < nodes; which++) {
        heap[5] = (int)which + 7;
        local = (int)which + 9;
        thread_local_which = which;
        bz_create(node);
        if (late && which == 1)
            while (!all->seen[1]) {
            }
        if (late && which == 2) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    for (unsigned i = 1; i < nodes; i++)
        while (!all->seen[i]) {
        }
    for (unsigned i = 1; i < nodes; i++) all->between[i] = i;
    all->go = 1;
    bz_wait_for_end(nodes - 1);
    unsigned right = 0, each_letter = 0;
    for (unsigned i = 1; i < nodes; i++) {
        right += all->seen[i] == 100 + i;
        for (unsigned j = 1; j < nodes; j++) each_letter += all->letter[j] == (char)('a' + (i - 1) % 26);
    }
    printf(": %u right, %u letters, position %ld, heap %d\n", right, each_letter, (long)lseek(letters, 0, SEEK_CUR),
           nodes > 1 ? heap[5] - (int)nodes : 0);
    return 0;
}
