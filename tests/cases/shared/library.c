//# flags: -O2
//# link: -pie | -static
//# nodes: 2 3
/* Pointers to shared memory in the hands of the C library: what one node has written must be read there by the other, with string
 * instructions, vector loads and plain ones alike, and what the library stores must reach the other node. */
#include "check.h"
#include <stdlib.h>
#include <string.h>

enum { WORDS = 5000, TEXT = 3000 };

static int ascending(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int main(void) {
    node = bz_node();
    unsigned nodes = bz_nodes(), other = (node + 1) % nodes;
    if (node == 0) {
        bz_publish(0, bz_alloc(WORDS * sizeof(int)));
        bz_publish(1, bz_alloc(TEXT * 64));
    }
    int *words = bz_lookup(0);
    char *texts = bz_lookup(1), *mine = texts + node * TEXT, *theirs = texts + other * TEXT;
    for (int round = 0; round < 6; round++) {
        /* Stores of the library: memset, snprintf, strcat, memcpy. */
        memset(mine, 'a' + (int)node + round, TEXT - 1);
        int n = snprintf(mine, TEXT, "%u:%d:%.3f:%s", node, round, round / 8.0, "text");
        memcpy(mine + n + 1, "tail", 5);
        strcat(mine, "+more");
        bz_barrier();
        /* Loads of the library: strlen, sscanf, strcmp, memchr, memcmp, printf to a buffer. */
        unsigned who;
        int when;
        char word[32], copy[TEXT];
        CHECK(sscanf(theirs, "%u:%d:", &who, &when) == 2 && who == other && when == round);
        CHECK(snprintf(word, sizeof word, "%s", theirs) == (int)strlen(theirs));
        CHECK(strcmp(strrchr(theirs, ':'), ":text+more") == 0);
        memcpy(copy, theirs, TEXT);
        CHECK(memcmp(copy, theirs, TEXT) == 0 && memchr(theirs + 200, 0, TEXT - 200) == theirs + TEXT - 1);
        CHECK(copy[1500] == 'a' + (int)other + round);
        bz_barrier();
        /* qsort of the library, on what the other node has filled. */
        if (node == (unsigned)round % nodes)
            for (int i = 0; i < WORDS; i++) words[i] = (i * 7919 + round) % 10007;
        bz_barrier();
        if (other == (unsigned)round % nodes) qsort(words, WORDS, sizeof *words, ascending);
        bz_barrier();
        for (int i = 1; i < WORDS; i++)
            if (words[i - 1] > words[i]) {
                CHECK(!"sorted");
                break;
            }
        bz_barrier();
    }
    /* Output of what the last node has written: through the stream's buffer, and past it. */
    if (node == nodes - 1) {
        for (int i = 0; i < TEXT * 64; i++) texts[i] = i % 60 == 59 ? '\n' : (char)('a' + i % 23);
        texts[TEXT * 32] = 0;
    }
    bz_barrier();
    if (node == 0) {
        fwrite(texts, 1, 240, stdout);
        fwrite(texts + 240, 60, 200, stdout);
        puts(texts + TEXT * 32 - 200);
    }
    return failed();
}
