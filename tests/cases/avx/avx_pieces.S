#include "zoo.inc"
        TABLE
        .macro  Y text:vararg
        PIECE   "\text", ALL
        vmovq   %r8, %xmm5
        vpbroadcastq %xmm5, %ymm5
        \text
        vmovdqu %ymm5, 32(%rsi)
        vzeroupper
        END
        .endm
        .irp    op, vmovups, vmovupd, vmovdqu
        Y       \op (%rdi), %ymm5
        Y       \op (%rdi), %xmm5
        Y       \op %ymm5, (%rdi)
        Y       \op %xmm5, (%rdi)
        .endr
        .irp    op, vpaddd, vpxor, vaddps, vmulpd, vpshufb, vpmaxub, vunpcklps
        Y       \op (%rdi), %ymm5, %ymm5
        Y       \op (%rdi), %xmm5, %xmm5
        .endr
        .irp    op, vpbroadcastb, vpbroadcastw, vpbroadcastd, vpbroadcastq, vbroadcastss, vbroadcastsd, vbroadcastf128, vbroadcasti128
        Y       \op (%rdi), %ymm5
        .endr
        .irp    op, vpmovzxbw, vpmovsxwd, vpmovzxbq, vcvtps2pd, vcvtdq2pd, vcvtph2ps, vsqrtps, vpabsd
        Y       \op (%rdi), %ymm5
        .endr
        Y       vextractf128 $1, %ymm5, (%rdi)
        Y       vextracti128 $1, %ymm5, (%rdi)
        Y       vinsertf128 $1, (%rdi), %ymm5, %ymm5
        Y       vpermd (%rdi), %ymm5, %ymm5
        Y       vpermq $0x1b, (%rdi), %ymm5
        Y       vperm2i128 $0x21, (%rdi), %ymm5, %ymm5
        Y       vpblendd $0x5a, (%rdi), %ymm5, %ymm5
        Y       vcvtps2ph $0, %ymm5, (%rdi)
        Y       vfmadd231ps (%rdi), %ymm5, %ymm5
        Y       vfmadd213sd (%rdi), %xmm5, %xmm5
        Y       vmovss (%rdi), %xmm5
        Y       vmovsd (%rdi), %xmm5
        Y       vmovss %xmm5, (%rdi)
        Y       vmovsd %xmm5, (%rdi)
        Y       vmovd %xmm5, (%rdi)
        Y       vmovq (%rdi), %xmm5
        Y       vmovhps (%rdi), %xmm5, %xmm5
        Y       vmovhps %xmm5, (%rdi)
        Y       vpinsrb $7, (%rdi), %xmm5, %xmm5
        Y       vpextrw $3, %xmm5, (%rdi)
        Y       vptest (%rdi), %ymm5
        Y       vucomisd (%rdi), %xmm5
        Y       vlddqu (%rdi), %ymm5
        .macro  YA text:vararg
        PIECE   "\text aligned", ALL
        and     $-32, %rdi
        vmovq   %r8, %xmm5
        vpbroadcastq %xmm5, %ymm5
        \text
        vmovdqu %ymm5, 32(%rsi)
        vzeroupper
        END
        .endm
        .irp    op, vmovaps, vmovdqa
        YA      \op (%rdi), %ymm5
        YA      \op %ymm5, (%rdi)
        .endr
        YA      vmovntps %ymm5, (%rdi)
        YA      vmovntdq %ymm5, (%rdi)
        YA      vmovntdqa (%rdi), %ymm5
        // Upper halves that are dirty while legacy instructions and accesses run.
        PIECE   "upper halves live across legacy accesses", ALL
        vmovdqu (%rdi), %ymm4
        movdqu  (%rsi), %xmm3
        movdqu  %xmm3, 16(%rsi)
        mov     (%rdi), %rax
        vmovdqu %ymm4, 32(%rdi)
        vzeroupper
        END
        TABLE_END
