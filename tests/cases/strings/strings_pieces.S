#include "zoo.inc"
        TABLE
        .irp    size, b, w, l, q
        P       ALL, movs\size
        P       ALL, stos\size
        P       ALL, lods\size
        P       ALL, scas\size
        P       ALL, cmps\size
        P       ALL, rep movs\size
        P       ALL, rep stos\size
        P       ALL, rep lods\size
        P       ALL, repe scas\size
        P       ALL, repne scas\size
        P       ALL, repe cmps\size
        P       ALL, repne cmps\size
        .endr
        // Conditions of a string instruction used afterwards, and flags that live across one that sets none.
        PIECE   "strlen", ALL
        mov     $200, %ecx
        mov     $0x42, %al
        repne scasb
        jne     1f
        not     %rcx
1:      sbb     %rdx, %rdx
        END
        PIECE   "memcmp", ALL
        mov     $100, %ecx
        repe cmpsb
        seta    %al
        sbbb    $0, %al
        END
        PIECE   "carry across rep movs", ALL
        stc
        mov     $70, %ecx
        rep movsb
        adc     %r8, %r9
        END
        PIECE   "carry across rep stos", ALL
        clc
        mov     $9, %ecx
        rep stosq
        adc     %r8, %r9
        setz    %r10b
        END
        PIECE   "copy after copy", ALL
        mov     $11, %ecx
        rep movsw
        mov     $5, %ecx
        rep movsl
        movsb
        END
        TABLE_END
