#include "zoo.inc"
        TABLE
        // load form, to xmm5, then where all can see it
        .macro  LOAD text:vararg
        PIECE   "\text", ALL
        movq    %r8, %xmm5
        \text
        movdqu  %xmm5, 32(%rsi)
        END
        .endm
        .macro  STORE text:vararg
        PIECE   "\text", ALL
        movq    %r8, %xmm5
        movq    %r9, %xmm6
        punpcklqdq %xmm6, %xmm5
        \text
        END
        .endm
        .irp    op, movups, movupd, movdqu, lddqu
        LOAD    \op (%rdi), %xmm5
        .endr
        .irp    op, movups, movupd, movdqu
        STORE   \op %xmm5, (%rdi)
        STORE   \op %xmm5, -16(%rsi,%rcx,8)
        .endr
        .irp    op, movss, movsd, movd, movq, movlps, movhps, movlpd, movhpd, movddup, cvtss2sd, cvtsd2ss, sqrtss, cvtps2pd, cvtdq2pd, pmovzxbw, pmovsxdq, pmovzxbq
        LOAD    \op (%rdi), %xmm5
        .endr
        .irp    op, movss, movsd, movd, movq, movlps, movhps, movlpd, movhpd
        STORE   \op %xmm5, (%rdi)
        .endr
        .irp    op, addss, mulsd, minss, maxsd, ucomiss, comisd
        LOAD    \op (%rdi), %xmm5
        .endr
        LOAD    pinsrb $3, (%rdi), %xmm5
        LOAD    pinsrw $5, (%rdi), %xmm5
        LOAD    pinsrd $1, (%rdi), %xmm5
        LOAD    pinsrq $1, (%rdi), %xmm5
        LOAD    insertps $0x1c, (%rdi), %xmm5
        STORE   pextrb $3, %xmm5, (%rdi)
        STORE   pextrw $5, %xmm5, (%rdi)
        STORE   pextrd $1, %xmm5, (%rdi)
        STORE   pextrq $1, %xmm5, (%rdi)
        STORE   extractps $2, %xmm5, (%rdi)
        LOAD    cvttsd2si (%rdi), %r10
        LOAD    cvtsi2sdq (%rdi), %xmm5
        LOAD    cvtsi2ssl (%rdi), %xmm5
        // Aligned operands.
        .macro  ALIGNED text:vararg
        PIECE   "\text", ALL
        and     $-16, %rdi
        movq    %r8, %xmm5
        \text
        movdqu  %xmm5, (%rsi)
        END
        .endm
        .irp    op, movaps, movapd, movdqa, paddd, pxor, pand, pshufb, punpcklbw, pmaddwd, psadbw, pcmpeqb, packuswb, mulps, addpd, movntdqa, movshdup, aesenc, pclmullqlqdq
        ALIGNED \op (%rdi), %xmm5
        .endr
        .irp    op, movaps, movapd, movdqa, movntps, movntpd, movntdq
        ALIGNED \op %xmm5, (%rdi)
        .endr
        ALIGNED pshufd $0x1b, (%rdi), %xmm5
        ALIGNED shufps $0x4e, (%rdi), %xmm5
        ALIGNED palignr $5, (%rdi), %xmm5
        ALIGNED ptest (%rdi), %xmm5
        PIECE   "pcmpistri", ALL
        movq    %r8, %xmm5
        pcmpistri $0x0c, (%rdi), %xmm5
        END
        PIECE   "pcmpestrm", ALL
        movq    %r8, %xmm5
        mov     $9, %eax
        mov     $12, %edx
        pcmpestrm $0x40, (%rdi), %xmm5
        movdqu  %xmm0, (%rsi)
        END
        PIECE   "MMX", ALL
        movq    (%rdi), %mm1
        paddb   (%rsi), %mm1
        movd    %mm1, (%rsi)
        movq    %mm1, 8(%rdi)
        movntq  %mm1, 8(%rsi)
        emms
        END
        PIECE   "cvtpi2ps", ALL
        cvtpi2ps (%rdi), %xmm5
        movlps  %xmm5, (%rsi)
        emms
        END
        PIECE   "four vectors at once", ALL
        movdqu  (%rdi), %xmm0
        movdqu  16(%rdi), %xmm1
        movdqu  32(%rdi), %xmm2
        movdqu  48(%rdi), %xmm3
        movdqu  %xmm3, (%rsi)
        movdqu  %xmm2, 16(%rsi)
        movdqu  %xmm1, 32(%rsi)
        movdqu  %xmm0, 48(%rsi)
        END
        TABLE_END
