//# nodes: 1 2
/* Handlers see the calls that led to where the program is: backtrace() and _Unwind_Backtrace reach main's caller, and names are those of the functions
 * on the way. Exceptions may be caught in a handler, and do not leave it. */
#include "check.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <stdexcept>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#define CALLED extern "C" __attribute__((noinline))

static void *caller_of_main;
static bool has_names;
static volatile int looks, faults;
static const char *volatile where;
static int *shared;

static _Unwind_Reason_Code seek(struct _Unwind_Context *context, void *found) {
    if ((void *)_Unwind_GetIP(context) == caller_of_main) *(bool *)found = true;
    return _URC_NO_REASON;
}

/* `where` is the function that the program is in; `through` called it, and main called that one. */
__attribute__((noinline)) static void look(const char *what) {
    void *frames[128];
    int count = backtrace(frames, 128), next = 0;
    const char *expected[] = {where, "through", "main"};
    bool found = false, again = false;
    for (int i = 0; i < count; i++) {
        Dl_info info;
        found |= frames[i] == caller_of_main;
        if (next < 3 && dladdr((char *)frames[i] - 1, &info) && info.dli_sname && !strcmp(info.dli_sname, expected[next])) next++;
    }
    _Unwind_Backtrace(seek, &again);
    /* Static programs have no names. */
    if (next != 3 * has_names || !found || !again) {
        failures++;
        printf("WRONG on node %u: %s in %s: %d frames, %d of 3 functions, main's caller %d %d\n", TPPI_self_address, what, where, count, next, found, again);
        char **names = backtrace_symbols(frames, count);
        for (int i = 0; i < count; i++) printf("    %s\n", names[i]);
        fflush(stdout);
    }
    looks++;
}

struct Counted {
    static int ended;
    ~Counted() { ended++; }
};
int Counted::ended;
__attribute__((noinline)) static void throws(int n) {
    Counted counted;
    if (n == 0) throw std::runtime_error("out");
    throws(n - 1);
    asm volatile("" ::: "memory");
}
static void on_message(TPPI_NodeId, int) {
    look("message");
    int before = Counted::ended;
    try {
        throws(2);
    } catch (std::exception &e) {
        EXPECT("exceptions", Counted::ended == before + 3 && !strcmp(e.what(), "out"));
    }
}
static void on_timer(void *) { look("timer"); }
static void on_fault(void *va, void *, TPPI_NodeId) {
    look("fault");
    faults++;
    TPPI_change_blk_acc(va, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RW);
    TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);
}
static void on_late_fault(void *va, void *, TPPI_NodeId) {
    look("late fault");
    faults++;
    TPPI_schedule_timer(2000, [](void *va) {
        look("timer in a fault");
        TPPI_change_blk_acc(va, TPPI_TAG_BLK_SIZE, TPPI_Blk_Validate_RW);
        TPPI_resume_va(va, TPPI_TAG_BLK_SIZE);
    }, va);
}
CALLED void computes() {
    int before = looks;
    where = __func__;
    TPPI_send(TPPI_self_address, on_message);
    TPPI_schedule_timer(1000, on_timer, 0);
    while (looks < before + 2) /* No call of the runtime, only polls. */
        ;
    asm volatile("" ::: "memory");
}
CALLED void loads() {
    where = __func__;
    for (int n = 0; n < 8; n++) EXPECT("3.2.7", load(block(TPPI_self_address, n)) == 0);
    asm volatile("" ::: "memory");
}
CALLED void stores() {
    where = __func__;
    for (int n = 8; n < 16; n++) store(block(TPPI_self_address, n), n);
    asm volatile("" ::: "memory");
}
CALLED void copies() {
    where = __func__;
    char text[256];
    memset(text, 1, sizeof text);
    void *to = block(TPPI_self_address, 16), *from = text;
    size_t bytes = sizeof text;
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    /* By the C library. */
    memcpy(block(TPPI_self_address, 24), text, strlen(getenv("PATH")) ? sizeof text : 1);
    asm volatile("" ::: "memory");
}
CALLED void waits_for_fault() {
    where = __func__;
    store(block(64 + TPPI_self_address, 0), 1);
    asm volatile("" ::: "memory");
}
CALLED void sleeps() {
    where = __func__;
    static int sem;
    sem = 0;
    TPPI_schedule_timer(1000, on_timer, 0);
    TPPI_schedule_timer(3000, [](void *sem) { look("timer"); --*(int *)sem; }, &sem);
    TPPI_sleep(&sem);
    asm volatile("" ::: "memory");
}
CALLED void meets() {
    where = __func__;
    /* The other nodes wait for node 0, which comes late. */
    bool is_late = TPPI_self_address == 0;
    int before = looks, rounds = 0, waited = 0;
    for (; rounds < 10; rounds++) {
        TPPI_schedule_timer(2000, on_timer, 0);
        if (is_late) usleep(20000);
        int begins = looks;
        bz_barrier();
        waited += looks > begins;
    }
    while (looks < before + rounds) sched_yield();
    EXPECT("3.5", is_late || waited > 0);
    asm volatile("" ::: "memory");
}
CALLED void calls() {
    where = __func__;
    int before = looks;
    TPPI_schedule_timer(3000, on_timer, 0);
    struct timespec t = {0, 10000000};
    while (looks == before) nanosleep(&t, 0);
    asm volatile("" ::: "memory");
}
CALLED void misses() {
    where = __func__;
    int before = looks;
    for (int k = 0; k < 100; k++) TPPI_schedule_timer(100 * k, on_timer, 0);
    for (int k = 0; looks < before + 100; k++) ((volatile int *)shared)[16 * (k % 4)]++;
    asm volatile("" ::: "memory");
}
/* The program has something that catches everything around what a handler interrupts. */
static void on_thrown(TPPI_NodeId, int) { throw std::runtime_error("left a handler"); }
CALLED void throws_out() {
    where = __func__;
    TPPI_send(TPPI_self_address, on_thrown);
    for (;;) /* Only polls. */
        asm volatile("" ::: "memory");
}
__attribute__((always_inline)) static inline int uncaught(void (*through)(void (*)())) {
    std::set_terminate([] {
        look("terminate");
        printf(failures ? "" : "ended\n");
        fflush(stdout);
        _exit(0);
    });
    try {
        through(throws_out);
    } catch (...) {
        printf("WRONG: caught outside of the handler\n");
    }
    return 1;
}

CALLED void through(void (*run)()) {
    run();
    asm volatile("" ::: "memory");
}

int main(int argc, char **) {
    void *frames[2];
    backtrace(frames, 2);
    caller_of_main = frames[1];
    Dl_info info;
    has_names = dladdr(frames[0], &info) && info.dli_sname;
    shared = (int *)bz_alloc(4096);
    for (int is_store = 0; is_store < 2; is_store++) {
        TPPI_register_blk_acc_fault_handler(1, TPPI_Blk_Invalid, is_store, on_fault);
        TPPI_register_blk_acc_fault_handler(2, TPPI_Blk_Invalid, is_store, on_late_fault);
    }
    TPPI_alloc_and_map(page(TPPI_self_address), 1, TPPI_Blk_Invalid, 0, 0);
    TPPI_alloc_and_map(page(64 + TPPI_self_address), 2, TPPI_Blk_Invalid, 0, 0);
    bz_barrier();
    if (argc > 1) return uncaught(through);
    void (*all[])() = {computes, loads, stores, copies, waits_for_fault, sleeps, meets, calls, misses};
    for (auto run : all) through(run);
    where = "main";
    return done();
}
