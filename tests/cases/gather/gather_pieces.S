#include "zoo.inc"
        TABLE
        .macro  GATHER text:vararg
        PIECE   "\text", ALL
        vmovq   %r8, %xmm5
        vpbroadcastq %xmm5, %ymm5
        vmovdqu mask(%rip), %ymm6
        vmovdqu dwords(%rip), %ymm7
        vmovdqu qwords(%rip), %ymm8
        \text
        vmovdqu %ymm5, 32(%rsi)
        vpaddd  %ymm6, %ymm7, %ymm7
        vmovdqu %ymm7, 64(%rsi)
        vzeroupper
        END
        .endm
        GATHER  vpgatherdd %ymm6, (%rdi,%ymm7,1), %ymm5
        GATHER  vpgatherdd %ymm6, 5(%rdi,%ymm7,2), %ymm5
        GATHER  vpgatherdd %xmm6, -64(%rdi,%xmm7,4), %xmm5
        GATHER  vpgatherdq %ymm6, (%rdi,%xmm7,8), %ymm5
        GATHER  vpgatherdq %xmm6, 0x1000(%rdi,%xmm7,1), %xmm5
        GATHER  vpgatherqd %xmm6, (%rdi,%ymm8,4), %xmm5
        GATHER  vpgatherqd %xmm6, (%rdi,%xmm8,4), %xmm5
        GATHER  vpgatherqq %ymm6, (%rdi,%ymm8,8), %ymm5
        GATHER  vpgatherqq %xmm6, (%rdi,%xmm8,1), %xmm5
        GATHER  vgatherdps %ymm6, (%rdi,%ymm7,4), %ymm5
        GATHER  vgatherdpd %ymm6, (%rdi,%xmm7,2), %ymm5
        GATHER  vgatherqps %xmm6, (%rdi,%ymm8,1), %xmm5
        GATHER  vgatherqpd %ymm6, (%rdi,%ymm8,2), %ymm5
        PIECE   "gather with nothing selected, from nowhere", ALL
        vpxor   %xmm6, %xmm6, %xmm6
        vpcmpeqd %ymm7, %ymm7, %ymm7
        vpgatherdd %ymm6, (%rax,%ymm7,4), %ymm5
        vzeroupper
        END
        PIECE   "gather off the stack pointer", ALL
        push    %r8
        push    %r9
        vpcmpeqd %ymm6, %ymm6, %ymm6
        vpxor   %xmm7, %xmm7, %xmm7
        vpgatherdd %ymm6, 4(%rsp,%ymm7,4), %ymm5
        vmovdqu %ymm5, (%rsi)
        vzeroupper
        pop     %rax
        pop     %rax
        END
        TABLE_END

        .section .rodata
        .balign 32
mask:   .long   -1, -1, 0, 0, -1, -1, -1, -1
dwords: .long   0, 64, -3, 1000, 63, 2000, -200, 129
qwords: .quad   1, -60, 1500, 255
