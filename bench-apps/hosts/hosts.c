/* What crosses between two hosts, measured by node 1 against node 0: a request with its reply, a read miss, 1 MiB of bulk data, messages one after the
 * other. Output: a line "name value" for each, the median of so many batches as the argument says, in microseconds; `stream`: of one message.
 */
#include <blizzard.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tempest.h>
#include <time.h>

enum { BATCH = 64, STREAM = 4096, BULK = 1 << 20, WARM_UP = 5, MOST = 1000 };

static unsigned node;
static volatile int waiting;
static char *buffer;
static int channel;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void on_reply(TPPI_NodeId from, int size) {
    (void)from, (void)size;
    (void)TPPI_recv_W();
    TPPI_wakeup(&waiting);
}

static void on_request(TPPI_NodeId from, int size) {
    (void)size;
    TPPI_send_W(from, on_reply, TPPI_recv_W());
}

static void requests(void) {
    for (int i = 0; i < BATCH; i++) {
        TPPI_send_W(0, on_request, i);
        TPPI_sleep(&waiting);
    }
}

static void on_item(TPPI_NodeId from, int size) {
    static unsigned long arrived;
    (void)size;
    (void)TPPI_recv_W();
    if (++arrived % STREAM == 0)
        TPPI_send_W(from, on_reply, 0);
}

static void stream(void) {
    for (int i = 0; i < STREAM; i++)
        TPPI_send_W(0, on_item, i);
    TPPI_sleep(&waiting);
}

static volatile uint64_t *blocks;

static void misses(void) {
    for (int i = 0; i < BATCH; i++)
        (void)blocks[8 * i];
}

static void on_data(TPPI_NodeId from, int number) {
    (void)from, (void)number;
    TPPI_wakeup(&waiting);
}

static void on_go(TPPI_NodeId from, int size) {
    (void)size;
    (void)TPPI_recv_W();
    TPPI_channel_send(from, channel, buffer, BULK);
}

static void on_channel(TPPI_NodeId from, int size) {
    (void)size;
    channel = TPPI_recv_W();
    TPPI_set_channel_dst(from, channel, buffer, BULK, on_data);
}

static void bulk(void) {
    TPPI_send_W(0, on_go, 0);
    TPPI_sleep(&waiting);
    TPPI_reset_channel(0, channel);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Node 1 does something, while node 0 waits in a barrier; before each batch node 0 has the blocks for itself. */
static void measure(const char *name, void (*what)(void), int each, int batches) {
    static double times[MOST];
    for (int batch = -WARM_UP; batch < batches; batch++) {
        bz_barrier();
        if (node == 0)
            for (int i = 0; i < BATCH; i++)
                blocks[8 * i] = (uint64_t)batch;
        bz_barrier();
        if (node == 1) {
            double begin = now();
            what();
            if (batch >= 0)
                times[batch] = (now() - begin) / each;
        }
    }
    bz_barrier();
    if (node == 1) {
        qsort(times, (size_t)batches, sizeof *times, by_value);
        printf("%s %.2f\n", name, times[batches / 2]);
        fflush(stdout);
    }
}

int main(int count, char **list) {
    int batches = count > 1 ? atoi(list[1]) : 100;
    node = bz_node();
    if (bz_nodes() != 2 || batches < 1 || batches > MOST) {
        fprintf(stderr, "hosts: two nodes measure each other, in 1 to %d batches\n", MOST);
        return 2;
    }
    if (node == 0)
        bz_publish(0, bz_alloc_on(0, BATCH * 64));
    blocks = bz_lookup(0);
    buffer = mmap(0, BULK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!blocks || buffer == MAP_FAILED) {
        perror("hosts: no memory");
        return 2;
    }
    memset(buffer, 1, BULK);
    bz_barrier();
    if (node == 0) {
        channel = TPPI_set_channel_src(1, 0);
        TPPI_send_W(1, on_channel, channel);
    }
    bz_barrier();
    measure("request_reply", requests, BATCH, batches);
    measure("read_miss", misses, BATCH, batches);
    measure("bulk_1mib", bulk, 1, batches);
    measure("stream", stream, STREAM, batches / 4 + 1);
    return 0;
}
