/* Floors of nodes on two hosts: bytes over a connection of TCP that the two nodes make, with nothing of Blizzard's. See bench.h.
 *
 * Node 0 says all its addresses and a number that nobody else knows. Node 1 tries them in turn: an address may be one of another machine, too,
 * so both ends say the number.
 */
#ifndef FAR_H
#define FAR_H

#include "workload.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { FAR_ADDRESSES = 32, FAR_LINE = 64, FAR_WAIT_MS = 2000 };

/* Where node 0 listens. */
struct far_place {
    uint64_t number;
    uint32_t count, port;
    uint32_t addresses[FAR_ADDRESSES];
};

/* Waits until all bytes have come. */
static int far_take(int peer, void *to, size_t bytes) {
    char *at = to;
    while (bytes) {
        ssize_t count = recv(peer, at, bytes, 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return 0;
        at += count, bytes -= (size_t)count;
    }
    return 1;
}

static int far_give(int peer, const void *from, size_t bytes) {
    const char *at = from;
    while (bytes) {
        ssize_t count = send(peer, at, bytes, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return 0;
        at += count, bytes -= (size_t)count;
    }
    return 1;
}

static void far_require(int done) {
    if (!done) {
        fprintf(stderr, "bench: the connection of the two nodes has ended\n");
        exit(3);
    }
}

static int far_listen(struct far_place *place) {
    memset(place, 0, sizeof *place);
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t bytes = sizeof any;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct ifaddrs *all = 0;
    if (listener < 0 || bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 8) ||
        getsockname(listener, (struct sockaddr *)&any, &bytes) || getifaddrs(&all) ||
        getrandom(&place->number, sizeof place->number, 0) != sizeof place->number) {
        perror("bench: cannot listen for the other node");
        exit(3);
    }
    place->port = any.sin_port;
    for (struct ifaddrs *one = all; one && place->count < FAR_ADDRESSES; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && !(one->ifa_flags & IFF_LOOPBACK) && one->ifa_flags & IFF_UP)
            place->addresses[place->count++] = ((struct sockaddr_in *)one->ifa_addr)->sin_addr.s_addr;
    freeifaddrs(all);
    return listener;
}

/* Whether the other end knows the number. */
static int far_greet(int peer, uint64_t number) {
    int on = 1;
    struct timeval limit = {.tv_sec = FAR_WAIT_MS / 1000}, none = {0};
    uint64_t theirs = 0;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int greets = far_give(peer, &number, sizeof number) && far_take(peer, &theirs, sizeof theirs) && theirs == number;
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    return greets;
}

/* Node 1's connection; -1: it does not come. */
static int far_accept(int listener, const struct far_place *place) {
    int peer = -1;
    while (peer < 0) {
        struct pollfd comes = {.fd = listener, .events = POLLIN};
        int ready = poll(&comes, 1, 2 * FAR_WAIT_MS * (int)(place->count + 1));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            break;
        peer = accept4(listener, 0, 0, SOCK_CLOEXEC);
        if (peer >= 0 && !far_greet(peer, place->number)) {
            close(peer);
            peer = -1;
        }
    }
    close(listener);
    return peer;
}

/* A connection to node 0; -1: there is none. */
static int far_connect(const struct far_place *place) {
    for (uint32_t k = 0; k < place->count; k++) {
        struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = (in_port_t)place->port};
        there.sin_addr.s_addr = place->addresses[k];
        int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (peer < 0)
            return -1;
        /* How long a connection may take to be made, too. */
        struct timeval limit = {.tv_sec = FAR_WAIT_MS / 1000}, none = {0};
        setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (!connect(peer, (struct sockaddr *)&there, sizeof there) && far_greet(peer, place->number)) {
            setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
            return peer;
        }
        close(peer);
    }
    return -1;
}

/* As many bytes as a short message moves, from the node that asks and back. */
static void far_to_and_fro(int peer, int asks) {
    char line[FAR_LINE] = {0};
    if (asks)
        far_require(far_give(peer, line, sizeof line) && far_take(peer, line, sizeof line));
    else
        far_require(far_take(peer, line, sizeof line) && far_give(peer, line, sizeof line));
}

#endif
