#include "zoo.inc"
        TABLE
        .macro  MASKED text:vararg
        PIECE   "\text", ALL
        vmovq   %r8, %xmm5
        vpbroadcastq %xmm5, %ymm5
        vmovdqu masks(%rip), %ymm6
        \text
        vmovdqu %ymm5, 32(%rsi)
        vzeroupper
        END
        .endm
        .irp    op, vmaskmovps, vmaskmovpd, vpmaskmovd, vpmaskmovq
        MASKED  \op (%rdi), %ymm6, %ymm5
        MASKED  \op (%rdi), %xmm6, %xmm5
        MASKED  \op %ymm5, %ymm6, (%rdi)
        MASKED  \op %xmm5, %xmm6, (%rdi)
        .endr
        PIECE   "maskmovdqu", ALL
        movq    %r8, %xmm5
        movdqu  (%rsi), %xmm6
        maskmovdqu %xmm6, %xmm5
        END
        PIECE   "maskmovdqu of nothing", ALL
        pxor    %xmm6, %xmm6
        maskmovdqu %xmm6, %xmm5
        END
        PIECE   "maskmovq", ALL
        movq    (%rsi), %mm2
        movq    %r8, %mm1
        maskmovq %mm2, %mm1
        emms
        END
        TABLE_END

        .text
        .globl  masked_at_hole
masked_at_hole:
        vmovdqu half(%rip), %ymm6
        vmaskmovps (%rdi), %ymm6, %ymm5
        vpaddd  %ymm5, %ymm5, %ymm5
        vpmaskmovd %ymm5, %ymm6, (%rdi)
        vmovdqu %ymm5, (%rsi)
        vzeroupper
        jmp     *(%rsp)

        .section .rodata
        .balign 32
masks:  .long   -1, 0, 0x80000000, 0x7fffffff, 0, -1, -1, 0
half:   .long   -1, 0, -1, -1, 0, 0, 0, 0
