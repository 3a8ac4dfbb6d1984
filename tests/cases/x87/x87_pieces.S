#include "zoo.inc"
        // The pieces leave the x87 stack empty and the control word as it was.
        TABLE
        PIECE   "flds and fstps", ALL
        movl    $0x3fc00000, (%rdi)
        flds    (%rdi)
        fadds   (%rdi)
        fstps   (%rsi)
        END
        PIECE   "fldl and fstpl", ALL
        movabs  $0x3ff8000000000000, %rax
        mov     %rax, (%rdi)
        fldl    (%rdi)
        fmull   (%rdi)
        fstl    (%rsi)
        fstpl   (%rdi)
        END
        PIECE   "fldt and fstpt", ALL
        fld1
        fldpi
        faddp
        fstpt   (%rdi)
        fldt    (%rdi)
        fldt    (%rdi)
        fmulp
        fstpt   (%rsi)
        END
        PIECE   "integers", ALL
        filds   (%rdi)
        fildl   (%rdi)
        fildll  (%rdi)
        fistpll (%rsi)
        fistpl  8(%rsi)
        fistps  12(%rsi)
        END
        PIECE   "integer arithmetic", ALL
        fld1
        fiadds  (%rdi)
        fimull  (%rsi)
        fisubs  (%rdi)
        fistpll (%rdi)
        fnclex
        END
        PIECE   "fisttp", ALL
        fldpi
        fisttps (%rdi)
        fldpi
        fisttpl (%rsi)
        fldpi
        fisttpll 8(%rdi)
        END
        PIECE   "decimal", ALL
        fildl   (%rdi)
        fbstp   (%rsi)
        fbld    (%rsi)
        fbstp   (%rdi)
        END
        PIECE   "comparison with flags", ALL
        fld1
        fldz
        fcomip
        mov     (%rdi), %rax
        setb    (%rsi)
        fstp    %st(0)
        END
        PIECE   "compare memory", ALL
        fld1
        fcoms   (%rdi)
        fnstsw  %ax
        fcompl  (%rsi)
        fnstsw  8(%rdi)
        andw    $0x4500, 8(%rdi)
        and     $0x4500, %eax
        fnclex
        END
        PIECE   "control word", ALL
        fnstcw  (%rdi)
        movw    $0x0f7f, 4(%rdi)
        fldcw   4(%rdi)
        fldpi
        fistpl  (%rsi)
        fldcw   (%rdi)
        END
        // fnstenv stores the last instruction's address, which differs between builds; it is cleared.
        PIECE   "environment", ALL
        fld1
        fnstenv (%rdi)
        fldenv  (%rdi)
        movq    $0, 12(%rdi)
        movq    $0, 20(%rdi)
        fstps   (%rsi)
        END
        PIECE   "save and restore", ALL
        fld1
        fldpi
        fnsave  (%rdi)
        frstor  (%rdi)
        faddp
        movq    $0, 12(%rdi)
        movq    $0, 20(%rdi)
        fstpt   (%rsi)
        END
        PIECE   "fxsave and fxrstor", ALL
        and     $-16, %rdi
        sub     $512, %rdi
        movq    %r8, %xmm3
        fldpi
        fxsave  (%rdi)
        pxor    %xmm3, %xmm3
        ffree   %st(0)
        fxrstor (%rdi)
        movq    %xmm3, %rax
        fstpt   (%rsi)
        // 512 bytes of state hold addresses and other registers: only the part for xmm3 is looked at.
        mov     208(%rdi), %rdx
        mov     $64, %ecx
        xor     %eax, %eax
        rep stosq
        END
        PIECE   "fxsave64", ALL
        and     $-16, %rdi
        sub     $256, %rdi
        movq    %r12, %xmm7
        fxsave64 (%rdi)
        pxor    %xmm7, %xmm7
        fxrstor64 (%rdi)
        movq    %xmm7, %rbx
        mov     $64, %ecx
        xor     %eax, %eax
        rep stosq
        END
        PIECE   "mxcsr", ALL
        stmxcsr (%rdi)
        movl    $0x1f80, 4(%rdi)
        ldmxcsr 4(%rdi)
        andl    $0xffc0, (%rdi)
        END
        PIECE   "a value on the x87 stack across accesses", ALL
        fldpi
        fldl2e
        mov     (%rdi), %rax
        add     %rax, (%rsi)
        fmulp
        fstpt   (%rdi)
        END
        TABLE_END
