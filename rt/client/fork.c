/* The client library's part of creating nodes. An object file of its own: only programs that create nodes are linked with it, and so
 * carry the note by which `blizzard run` knows to start node 0 alone. */
#define _GNU_SOURCE
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* FORK_NOTE_NAME, FORK_NOTE_TYPE of rt/src/abi.rs. A note is part of a segment: `strip` leaves it alone. */
__asm__(".pushsection .note.blizzard.fork,\"a\",@note\n"
        ".balign 4\n"
        ".long 9, 0, 1\n"
        ".asciz \"Blizzard\"\n"
        ".balign 4\n"
        ".popsection\n");

static unsigned created, awaited;

void bz_create(void (*fn)(void)) {
    const struct bz_api *api = bz_client_api();
    if (!fn) {
        fputs("blizzard: error: bz_create: a null pointer is no function\n", stderr);
        abort();
    }
    /* What waits in buffers would be written by both processes. */
    fflush(NULL);
    api->create_begin();
    pid_t pid = fork();
    if (pid == 0) {
        fn();
        exit(0);
    }
    api->create_end(pid);
    created++;
}

void bz_fork_nodes(void (*fn)(void)) {
    unsigned others = bz_nodes() - 1;
    while (created < others) bz_create(fn);
}

void bz_wait_for_end(unsigned count) {
    bz_client_api()->wait_for_end(count);
    awaited += count;
}

void bz_wait_for_created(unsigned most) {
    unsigned left = created - awaited;
    bz_wait_for_end(most < left ? most : left);
}
