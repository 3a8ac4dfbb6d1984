/* The other module of tls.c. */
#include <stdint.h>
#include <pthread.h>
__thread uint64_t exported = 7;
__thread uint64_t zeroed[100];
static __thread uint64_t hidden_from_others = 11;
static __thread struct { char c; uint64_t aligned __attribute__((aligned(64))); } wide = {'w', 13};

uint64_t library_step(uint64_t by) {
    exported += by;
    hidden_from_others = hidden_from_others * 3 + by;
    zeroed[by % 100] += exported;
    wide.aligned ^= hidden_from_others;
    return exported + hidden_from_others + zeroed[(by * 7) % 100] + wide.aligned + (uint64_t)wide.c;
}
