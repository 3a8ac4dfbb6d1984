//# uses: blizzard
//# flags: -O0 | -O2 -fno-tree-loop-distribute-patterns
//# link: -pie | -no-pie
//# compilers: gcc
//# nodes: 2 3
/* Structures in private memory that lead to shared memory, and the other way round: what the kernel writes into a structure comes to the program, and nothing
 * else of it changes. Guarded code gives the kernel a copy of such a structure. Then the same in calls that wait, while a peer writes the same
 * block and a timer's handler makes such calls, too. */
#define _GNU_SOURCE
#include "check.h"
#include <net/if.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { MESSAGES = 3 };

/* What calls lead to, in shared or in private memory. */
struct parts {
    struct sockaddr_un name;
    char control[64];
    char halves[2][16];
    struct iovec vectors[2];
    struct mmsghdr messages[MESSAGES];
    struct ifreq interfaces[8];
};

static int sender = -1, receiver = -1;
static struct sockaddr_un own_name;

static void sockets(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    sender = pair[0];
    receiver = pair[1];
    own_name.sun_family = AF_UNIX;
    snprintf(own_name.sun_path, sizeof own_name.sun_path, "%cblizzard-messages-%d", 0, (int)getpid());
    CHECK(bind(sender, (struct sockaddr *)&own_name, sizeof own_name) == 0);
    int yes = 1;
    CHECK(setsockopt(receiver, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0);
}

/* Each of the structure's pointers leads to `near` or to `far`, which are private and shared memory, or the other way round. */
static void one(struct msghdr *header, struct parts *near, struct parts *far) {
    far->vectors[0] = (struct iovec){near->halves[0], 5};
    far->vectors[1] = (struct iovec){far->halves[1], 6};
    memset(near->halves[0], 0, 16);
    memset(far->halves[1], 0, 16);
    struct msghdr asked = {.msg_name = &far->name,
                           .msg_namelen = sizeof far->name,
                           .msg_iov = far->vectors,
                           .msg_iovlen = 2,
                           .msg_control = near->control,
                           .msg_controllen = sizeof near->control,
                           .msg_flags = 0x77};
    *header = asked;
    CHECK(send(sender, "a text that is too long", 23, 0) == 23);
    CHECK(recvmsg(receiver, header, 0) == 11);
    CHECK(memcmp(near->halves[0], "a tex", 6) == 0 && memcmp(far->halves[1], "t that", 7) == 0);
    CHECK(header->msg_namelen == sizeof own_name && memcmp(&far->name, &own_name, sizeof own_name) == 0);
    CHECK(header->msg_flags == MSG_TRUNC && header->msg_controllen == CMSG_SPACE(sizeof(struct ucred)));
    struct cmsghdr *credentials = CMSG_FIRSTHDR(header);
    CHECK(credentials->cmsg_type == SCM_CREDENTIALS && ((struct ucred *)CMSG_DATA(credentials))->pid == getpid());
    CHECK(header->msg_name == asked.msg_name && header->msg_iov == asked.msg_iov && header->msg_iovlen == 2);
    CHECK(header->msg_control == asked.msg_control && far->vectors[0].iov_base == near->halves[0]);
    /* Nothing is there: nothing is written. */
    *header = asked;
    CHECK(recvmsg(receiver, header, MSG_DONTWAIT) == -1 && errno == EAGAIN && header->msg_flags == 0x77);
    *header = (struct msghdr){.msg_iov = far->vectors, .msg_iovlen = 2, .msg_flags = 0x77};
    CHECK(sendmsg(sender, header, 0) == 11 && header->msg_flags == 0x77);
    CHECK(recv(receiver, far->control, sizeof far->control, 0) == 11 && memcmp(far->control, "a text that", 11) == 0);
}

static void many(struct mmsghdr *messages, struct parts *near, struct parts *far) {
    for (int i = 0; i < 2; i++) strcpy((i ? near : far)->halves[i], i ? "second" : "first");
    near->vectors[0] = (struct iovec){far->halves[0], 5};
    far->vectors[1] = (struct iovec){near->halves[1], 6};
    for (int i = 0; i < MESSAGES; i++) {
        memset(&messages[i], 0, sizeof messages[i]);
        messages[i].msg_hdr.msg_iov = i % 2 ? &far->vectors[1] : &near->vectors[0];
        messages[i].msg_hdr.msg_iovlen = 1;
        messages[i].msg_len = 99;
    }
    CHECK(sendmmsg(sender, messages, 2, 0) == 2);
    CHECK(messages[0].msg_len == 5 && messages[1].msg_len == 6 && messages[2].msg_len == 99);
    memset(far->halves[0], 0, 16);
    memset(near->halves[1], 0, 16);
    messages[1].msg_hdr.msg_name = &near->name;
    messages[1].msg_hdr.msg_namelen = sizeof near->name;
    messages[0].msg_len = messages[1].msg_len = 0;
    CHECK(recvmmsg(receiver, messages, MESSAGES, MSG_DONTWAIT, 0) == 2);
    CHECK(messages[0].msg_len == 5 && messages[1].msg_len == 6 && messages[2].msg_len == 99);
    CHECK(messages[1].msg_hdr.msg_namelen == sizeof own_name && messages[1].msg_hdr.msg_name == &near->name);
    CHECK(messages[2].msg_hdr.msg_iov == &near->vectors[0] && messages[0].msg_hdr.msg_flags == MSG_CTRUNC);
    CHECK(memcmp(far->halves[0], "first", 5) == 0 && memcmp(near->halves[1], "second", 6) == 0);
}

static void interfaces(struct parts *near, struct parts *far) {
    struct ifconf here = {sizeof near->interfaces, {.ifcu_req = near->interfaces}};
    struct ifconf there = {sizeof far->interfaces, {.ifcu_req = far->interfaces}};
    CHECK(ioctl(receiver, SIOCGIFCONF, &here) == 0 && ioctl(receiver, SIOCGIFCONF, &there) == 0);
    CHECK(here.ifc_len == there.ifc_len && here.ifc_len % (int)sizeof(struct ifreq) == 0 && there.ifc_req == far->interfaces);
    CHECK(memcmp(near->interfaces, far->interfaces, here.ifc_len) == 0);
}

static struct parts *shared_parts;
static volatile int sends;

/* Makes calls of its own with such structures, and sends what the interrupted call waits for. */
static void tick(int signal) {
    (void)signal;
    struct iovec text = {shared_parts->halves[1], 4};
    shared_parts->halves[1][0] = 't';
    struct msghdr header = {.msg_iov = &text, .msg_iovlen = 1};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) failures++;
    if (sendmsg(pair[0], &header, 0) != 4) failures++;
    header.msg_name = &shared_parts->name;
    header.msg_namelen = sizeof shared_parts->name;
    if (recvmsg(pair[1], &header, 0) != 4 || header.msg_namelen != 0) failures++;
    close(pair[0]);
    close(pair[1]);
    if (sends && sendmsg(sender, &(struct msghdr){.msg_iov = &text, .msg_iovlen = 1}, 0) != 4) failures++;
}

static void waits(volatile unsigned long *word) {
    struct parts *far = shared_parts;
    for (int restart = 0; restart < 2; restart++) {
        for (int round = 0; round < 20; round++) {
            struct sigaction action = {0};
            action.sa_handler = tick;
            action.sa_flags = restart ? SA_RESTART : 0;
            CHECK(sigaction(SIGALRM, &action, 0) == 0);
            struct iovec vectors[1] = {{far->halves[0], 16}};
            struct msghdr header = {.msg_name = &far->name, .msg_namelen = sizeof far->name, .msg_iov = vectors, .msg_iovlen = 1, .msg_flags = 0x77};
            sends = restart;
            /* Again and again: the first may come before the call. */
            struct itimerval soon = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
            CHECK(setitimer(ITIMER_REAL, &soon, 0) == 0);
            errno = 0;
            ssize_t n = recvmsg(receiver, &header, 0);
            int error = errno;
            CHECK(setitimer(ITIMER_REAL, &never, 0) == 0);
            if (restart) {
                CHECK(n == 4 && far->halves[0][0] == 't' && header.msg_namelen == sizeof own_name && header.msg_flags == MSG_CTRUNC);
            } else {
                CHECK(n == -1 && error == EINTR && header.msg_namelen == sizeof far->name && header.msg_flags == 0x77);
            }
            CHECK(header.msg_iov == vectors && header.msg_name == &far->name);
            ++*word;
        }
    }
}

int main(void) {
    node = bz_node();
    unsigned nodes = bz_nodes();
    if (node == 0) bz_publish(0, bz_alloc((nodes + 1) * sizeof(struct parts)));
    struct parts *all = bz_lookup(0);
    static struct parts own;
    struct msghdr header;
    struct mmsghdr messages[MESSAGES];
    sockets();
    for (unsigned round = 0; round < 2 * nodes; round++) {
        /* What another node has written last. */
        struct parts *far = &all[(node + round) % nodes];
        memset(far, 0x5a, sizeof *far);
        bz_barrier();
        far = &all[(node + round + 1) % nodes];
        one(&header, &own, far);
        one(&far->messages[0].msg_hdr, far, &own);
        one(&far->messages[1].msg_hdr, far, far);
        many(messages, &own, far);
        many(far->messages, far, &own);
        interfaces(&own, far);
        bz_barrier();
    }
    /* Node 0 writes the blocks that the others wait in. */
    shared_parts = &all[node];
    volatile unsigned long *words = (volatile unsigned long *)&all[nodes];
    if (node) {
        waits(&words[node]);
    } else {
        for (unsigned ready = 0; ready < nodes - 1;) {
            ready = 0;
            for (unsigned i = 1; i < nodes; i++) {
                ready += words[i] == 40;
                all[i].interfaces[0].ifr_name[0]++;
                all[i].halves[0][15]++;
            }
        }
    }
    bz_barrier();
    return failed();
}
