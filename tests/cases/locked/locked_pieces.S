#include "zoo.inc"
        TABLE
        .irp    op, add, adc, sub, sbb
        P       ALL, lock \op %r11b, (%rdi)
        P       ALL, lock \op %r11w, (%rdi)
        P       ALL, lock \op %r11d, (%rdi)
        P       ALL, lock \op %r11, (%rdi)
        P       ALL, lock \op\()q $-7, (%rdi)
        P       ALL, lock \op\()l $0x1000000, (%rdi)
        .endr
        .irp    op, and, or, xor
        P       LOGIC, lock \op %r11b, (%rdi)
        P       LOGIC, lock \op %r11w, (%rdi)
        P       LOGIC, lock \op %r11d, (%rdi)
        P       LOGIC, lock \op %r11, (%rdi)
        P       LOGIC, lock \op\()b $0x55, (%rdi)
        .endr
        .irp    op, inc, dec, neg, not
        P       ALL, lock \op\()b (%rdi)
        P       ALL, lock \op\()w (%rdi)
        P       ALL, lock \op\()l (%rdi)
        P       ALL, lock \op\()q (%rdi)
        .endr
        .irp    op, bts, btr, btc
        P       BITTEST, lock \op\()q $5, (%rdi)
        PIECE   "lock \op far", BITTEST
        mov     $1111, %r11
        lock \op %r11, (%rdi)
        END
        .endr
        P       ALL, lock xadd %r11b, (%rdi)
        P       ALL, lock xadd %r11w, (%rdi)
        P       ALL, lock xadd %r11d, (%rdi)
        P       ALL, lock xadd %r11, (%rdi)
        P       ALL, lock xchg %r11, (%rdi)
        P       ALL, xchg %r11, (%rdi)
        P       ALL, xchg %r11b, (%rdi)
        .irp    size, b, w, d
        P       ALL, lock cmpxchg %r11\size, (%rdi)
        .endr
        P       ALL, lock cmpxchg %r11, (%rdi)
        PIECE   "lock cmpxchg that succeeds", ALL
        mov     (%rdi), %rax
        lock cmpxchg %r11, (%rdi)
        END
        PIECE   "lock cmpxchg loop", ALL
        mov     (%rdi), %rax
1:      lea     3(%rax), %r10
        lock cmpxchg %r10, (%rdi)
        jnz     1b
        END
        P       ALL, lock cmpxchg8b (%rdi)
        PIECE   "cmpxchg16b", ALL
        and     $-16, %rdi
        cmpxchg16b (%rdi)
        END
        PIECE   "lock cmpxchg16b that succeeds", ALL
        and     $-16, %rdi
        mov     (%rdi), %rax
        mov     8(%rdi), %rdx
        lock cmpxchg16b (%rdi)
        END
        PIECE   "lock cmpxchg16b that fails", ALL
        and     $-16, %rdi
        mov     (%rdi), %rax
        mov     8(%rdi), %rdx
        inc     %rdx
        lock cmpxchg16b (%rdi)
        END
        PIECE   "fences", ALL
        mov     (%rdi), %r10
        mfence
        mov     %r10, (%rsi)
        sfence
        lfence
        END
        TABLE_END
