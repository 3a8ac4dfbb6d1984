//# compilers: gcc
//# flags: -O0 -fnon-call-exceptions | -O2 -fnon-call-exceptions
//# link: -pie | -no-pie -s
//# exit: 3
/* What reaches the unwinder other than a C++ throw: exceptions of another language, forced unwinding, a thread's exit and its
 * cancellation, a throw out of a signal handler at the faulting load, a throw through a C library's frames. */
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <unistd.h>
#include <unwind.h>

#define NOINLINE __attribute__((noinline))

struct Guard {
    const char *name;
    explicit Guard(const char *n) : name(n) { std::printf("+%s ", name); }
    ~Guard() { std::printf("-%s ", name); }
};

static _Unwind_Exception foreign;

static void released(_Unwind_Reason_Code, _Unwind_Exception *) { std::printf("released "); }

NOINLINE static void raise_foreign() {
    Guard g("raiser");
    std::memset(&foreign, 0, sizeof foreign);
    std::memcpy(&foreign.exception_class, "OTHRLANG", 8);
    foreign.exception_cleanup = released;
    _Unwind_RaiseException(&foreign);
    std::abort();
}

static void other_language() {
    try {
        Guard g("frame");
        try {
            raise_foreign();
        } catch (int) {
            std::printf("caught as int, wrongly ");
        }
    } catch (...) {
        std::printf("caught ");
    }
    std::puts("other language");
}

static jmp_buf stopped;

static _Unwind_Reason_Code stop(int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception *,
                                _Unwind_Context *context, void *limit) {
    if ((actions & _UA_END_OF_STACK) || _Unwind_GetCFA(context) > reinterpret_cast<_Unwind_Word>(limit))
        longjmp(stopped, 1);
    return _URC_NO_REASON;
}

NOINLINE static void unwind_to(void *limit) {
    Guard g("forced");
    try {
        Guard h("inner");
        _Unwind_ForcedUnwind(&foreign, stop, limit);
    } catch (...) {
        std::printf("passing ");
        throw;
    }
}

static void forced() {
    volatile char here[16];
    if (!setjmp(stopped)) unwind_to(const_cast<char *>(here));
    std::puts("stopped");
}

static void *exits(void *) {
    Guard g("thread");
    try {
        Guard h("body");
        pthread_exit(&foreign);
    } catch (...) {
        std::printf("exiting ");
        throw;
    }
}

static pthread_barrier_t ready;

static void *waits(void *) {
    Guard g("waiter");
    // No cancellation earlier: compilers take printf for a function that does not unwind.
    pthread_barrier_wait(&ready);
    for (;;) usleep(1000);
}

static void threads() {
    pthread_t thread;
    void *result;
    pthread_create(&thread, nullptr, exits, nullptr);
    pthread_join(thread, &result);
    std::puts(result == &foreign ? "exited" : "wrong result");
    pthread_barrier_init(&ready, nullptr, 2);
    pthread_create(&thread, nullptr, waits, nullptr);
    pthread_barrier_wait(&ready);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    std::puts(result == PTHREAD_CANCELED ? "cancelled" : "wrong result");
}

struct Fault {};

static void fault(int) { throw Fault(); }

NOINLINE static int load(const volatile int *p) {
    Guard g("load");
    return *p;
}

static void from_handler() {
    struct sigaction action;
    std::memset(&action, 0, sizeof action);
    action.sa_handler = fault;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    for (unsigned long at = 0; at < 32; at += 16) {
        try {
            std::printf("%d", load(reinterpret_cast<int *>(at)));
        } catch (const Fault &) {
            std::printf("fault at %lx ", at);
        }
    }
    signal(SIGSEGV, SIG_DFL);
    std::puts("");
}

extern "C" int compare(const void *a, const void *b) {
    Guard g("compare");
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    if (x == 7 || y == 7) throw 7;
    return x - y;
}

static void through_libc() {
    int values[] = {5, 3, 7, 1};
    try {
        qsort(values, 4, sizeof values[0], compare);
    } catch (int i) {
        std::printf("%d ", i);
    }
    std::puts("out of qsort");
}

int main() {
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    other_language();
    forced();
    threads();
    from_handler();
    through_libc();
    return 3;
}
