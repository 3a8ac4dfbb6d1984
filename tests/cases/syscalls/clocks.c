//# uses: blizzard
//# flags: -O0 | -O2
//# link: -pie | -no-pie | -static
//# nodes: 2 3
/* Functions that the C library has the vDSO do, which looks at no tags: their results go to shared memory that another node wrote last, and are read
 * there. The clocks are those of the machine, so the times of all nodes have one order. */
#define _GNU_SOURCE
#include "check.h"
#include <sched.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 12, CLOCKS = 6 };

static const clockid_t clocks[CLOCKS] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE};

/* Each in blocks of its own, so that no call finds what the one before it has fetched; structures that begin in one block and end in
 * the next among them. */
struct times {
    struct { char before[56]; struct timespec at; char after[56]; } clock[CLOCKS];
    struct { char before[60]; struct { struct timeval tv; } __attribute__((packed)) in; char after[52]; } day;
    struct { time_t at; char after[56]; } seconds;
    struct { struct timespec of; char after[48]; } resolution;
    struct { unsigned cpu; char after[60]; unsigned where; char end[60]; } place;
    struct { struct timespec of; char after[48]; } utc;
    struct { struct timezone of; char after[56]; } zone;
} __attribute__((aligned(64)));

static int64_t ns(int64_t s, int64_t fraction) { return s * 1000000000 + fraction; }
static int64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return ns(t.tv_sec, t.tv_nsec);
}

static void take(volatile struct times *t) {
    for (int i = 0; i < CLOCKS; i++) CHECK(clock_gettime(clocks[i], (struct timespec *)&t->clock[i].at) == 0);
    CHECK(gettimeofday((struct timeval *)&t->day.in, 0) == 0);
    struct timeval unused;
    CHECK(gettimeofday(&unused, (struct timezone *)&t->zone.of) == 0);
    time_t seconds = time((time_t *)&t->seconds.at);
    CHECK(seconds == t->seconds.at);
    CHECK(clock_getres(CLOCK_MONOTONIC, (struct timespec *)&t->resolution.of) == 0);
    CHECK(getcpu((unsigned *)&t->place.cpu, (unsigned *)&t->place.where) == 0);
    CHECK(timespec_get((struct timespec *)&t->utc.of, TIME_UTC) == TIME_UTC);
}

/* What another node took between the two times of each clock. */
static void look(const struct times *t, int64_t (*span)[2]) {
    for (int i = 0; i < CLOCKS; i++) {
        int64_t at = ns(t->clock[i].at.tv_sec, t->clock[i].at.tv_nsec);
        CHECK(at >= span[i][0] && at <= span[i][1]);
        for (int k = 0; k < 56; k++) CHECK(t->clock[i].before[k] == 0x55 && t->clock[i].after[k] == 0x55);
    }
    struct timeval day;
    memcpy(&day, &t->day.in, sizeof day);
    int64_t at = ns(day.tv_sec, day.tv_usec * 1000);
    CHECK(at >= span[0][0] - 1000 && at <= span[0][1]);
    CHECK(t->day.before[59] == 0x55 && t->day.after[0] == 0x55);
    CHECK(t->zone.of.tz_minuteswest != 0x55555555 && t->zone.of.tz_dsttime != 0x55555555);
    /* The second is that of the coarse clock. */
    CHECK(t->seconds.at >= span[4][0] / 1000000000 && t->seconds.at <= span[4][1] / 1000000000);
    at = ns(t->resolution.of.tv_sec, t->resolution.of.tv_nsec);
    CHECK(at > 0 && at <= 1000000000);
    CHECK(t->place.cpu < 65536 && t->place.where < 65536);
    at = ns(t->utc.of.tv_sec, t->utc.of.tv_nsec);
    CHECK(at >= span[0][0] && at <= span[0][1]);
}

int main(void) {
    node = bz_node();
    unsigned nodes = bz_nodes(), next = (node + 1) % nodes;
    if (node == 0) bz_publish(0, bz_alloc(nodes * sizeof(struct times)));
    struct times *all = bz_lookup(0);
    int64_t span[CLOCKS][2];
    for (int round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < sizeof(struct times); i++) ((volatile char *)&all[next])[i] = 0x55;
        for (int i = 0; i < CLOCKS; i++) span[i][0] = now(clocks[i]);
        bz_barrier();
        take(&all[node]);
        bz_barrier();
        for (int i = 0; i < CLOCKS; i++) span[i][1] = now(clocks[i]);
        look(&all[next], span);
        bz_barrier();
    }
    /* With several nodes nobody finds a vDSO, not even who looks for it. */
    CHECK(nodes == 1 || getauxval(AT_SYSINFO_EHDR) == 0);
    return failed();
}
