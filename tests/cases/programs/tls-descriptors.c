//# compilers: gcc
//# flags: -O2 -mtls-dialect=gnu2 -ftls-model=global-dynamic | -O2 -mtls-dialect=gnu2 -ftls-model=local-dynamic
//# link: -pie -fPIC | -no-pie | -pie -fPIC -Wl,-z,now
//# library: tls_library.c
/* As tls.c, by TLS descriptors: `call *(%rax)` of a function that preserves all registers but rax, which a check before the call
 * may not take for scratch. */
#include "arena.h"
#include <pthread.h>

extern __thread __attribute__((tls_model("global-dynamic"))) uint64_t exported;
extern uint64_t library_step(uint64_t);
__thread uint64_t own = 3;
static __thread uint64_t local = 5, table[64];
static __thread __attribute__((tls_model("local-exec"))) uint64_t nearest = 9;

__attribute__((noinline)) static uint64_t step(uint64_t n) {
    own = own * 5 + n;
    local ^= own >> 3;
    table[n % 64] += local;
    nearest += table[(n * 3) % 64];
    return own + local + nearest + exported;
}
static void *thread(void *argument) {
    uint64_t result = (uint64_t)(uintptr_t)argument;
    for (uint64_t n = 0; n < 1000; n++)
        result = result * 31 + step(n) + library_step(n + result % 7);
    return (void *)(uintptr_t)result;
}
int main(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        if (pthread_create(&threads[i], 0, thread, (void *)i))
            return 2;
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        mix((uint64_t)(uintptr_t)result);
    }
    mix((uint64_t)(uintptr_t)thread((void *)9));
    report("thread-local");
    return 0;
}
