//# compilers: gcc
//# flags: -O2 -mtls-dialect=gnu2 -ftls-model=global-dynamic | -O2 -mtls-dialect=gnu2 -ftls-model=local-dynamic
//# link: -pie -fPIC | -no-pie | -pie -fPIC -Wl,-z,now
//# library: tls_library.c
/* As tls.c, by TLS descriptors: `call *(%rax)` of a function that preserves all registers but rax, which a check before the call
 * may not take for scratch. */
#include "tls.c"
