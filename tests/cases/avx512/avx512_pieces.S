#include "zoo.inc"
        TABLE
        .macro  Z text:vararg
        PIECE   "\text", ALL
        vpbroadcastq %r8, %zmm5
        vpbroadcastq %r9, %zmm20
        vmovdqu64 dwords(%rip), %zmm7
        vmovdqu64 qwords(%rip), %zmm28
        kmovq   %r12, %k1
        \text
        vmovdqu64 %zmm5, 64(%rsi)
        kmovq   %k1, %r10
        vzeroupper
        END
        .endm
        .irp    op, vmovups, vmovupd, vmovdqu8, vmovdqu16, vmovdqu32, vmovdqu64
        Z       \op (%rdi), %zmm5
        Z       \op %zmm20, (%rdi)
        Z       \op (%rdi), %zmm5{%k1}
        Z       \op (%rdi), %zmm5{%k1}{z}
        Z       \op %zmm20, (%rdi){%k1}
        Z       \op (%rdi), %ymm5{%k1}
        Z       \op %xmm20, (%rdi){%k1}
        .endr
        Z       vpaddd (%rdi), %zmm20, %zmm5
        Z       vpaddd (%rdi){1to16}, %zmm20, %zmm5
        Z       vpaddq (%rdi){1to8}, %zmm20, %zmm5{%k1}
        Z       vaddps (%rdi), %zmm20, %zmm5{%k1}{z}
        Z       vmulpd 64(%rdi){1to4}, %ymm20, %ymm5
        Z       vpternlogd $0x96, (%rdi), %zmm20, %zmm5
        Z       vpcompressd %zmm20, (%rdi){%k1}
        Z       vpcompressq %ymm20, (%rdi){%k1}
        Z       vpexpandd (%rdi), %zmm5{%k1}
        Z       vexpandpd (%rdi), %zmm5{%k1}{z}
        Z       vpmovdb %zmm20, (%rdi)
        Z       vpmovqd %zmm20, (%rdi){%k1}
        Z       vpmovzxbd (%rdi), %zmm5
        Z       vbroadcasti32x4 (%rdi), %zmm5
        Z       vbroadcasti64x4 (%rdi), %zmm5{%k1}
        Z       vextracti64x4 $1, %zmm20, (%rdi)
        Z       vextracti32x4 $3, %zmm20, (%rdi){%k1}
        Z       vinserti64x4 $1, (%rdi), %zmm20, %zmm5
        Z       vpcmpeqd (%rdi), %zmm20, %k1
        Z       vptestmq (%rdi), %zmm20, %k1
        Z       vcvtps2pd (%rdi), %zmm5
        Z       vpermt2d (%rdi), %zmm20, %zmm5
        Z       vpconflictd (%rdi), %zmm5
        Z       vmovss (%rdi), %xmm5{%k1}
        Z       vmovsd %xmm20, (%rdi){%k1}
        .irp    size, b, w, d, q
        Z       kmov\size (%rdi), %k1
        Z       kmov\size %k1, (%rdi)
        .endr
        Z       vpgatherdd (%rdi,%zmm7,1), %zmm5{%k1}
        Z       vpgatherdq 8(%rdi,%ymm7,4), %zmm5{%k1}
        Z       vpgatherqd (%rdi,%zmm28,2), %ymm5{%k1}
        Z       vgatherqpd (%rdi,%zmm28,1), %zmm5{%k1}
        Z       vgatherdps (%rdi,%ymm7,2), %ymm5{%k1}
        Z       vpscatterdd %zmm20, (%rdi,%zmm7,1){%k1}
        Z       vpscatterdq %zmm20, (%rdi,%ymm7,1){%k1}
        Z       vpscatterqq %zmm20, 16(%rdi,%zmm28,1){%k1}
        Z       vscatterqps %ymm20, (%rdi,%zmm28,1){%k1}
        .macro  ZA text:vararg
        PIECE   "\text aligned", ALL
        and     $-64, %rdi
        vpbroadcastq %r8, %zmm5
        kmovq   %r12, %k1
        \text
        vmovdqu64 %zmm5, 64(%rsi)
        vzeroupper
        END
        .endm
        .irp    op, vmovaps, vmovapd, vmovdqa32, vmovdqa64
        ZA      \op (%rdi), %zmm5
        ZA      \op %zmm5, (%rdi)
        ZA      \op %zmm5, (%rdi){%k1}
        .endr
        ZA      vmovntdq %zmm5, (%rdi)
        ZA      vmovntdqa (%rdi), %zmm5
        TABLE_END

        .section .rodata
        .balign 64
dwords: .long   0, 64, -3, 100, 63, 20, -200, 129, 1, 2, 3, -64, -65, 7, 200, 190
qwords: .quad   1, -60, 150, 200, 8, -128, 65, 3
