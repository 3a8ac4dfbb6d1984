        .text
#include "targets.inc"
        .macro  JUMP
        movslq  (%rdx,%rdi,4), %rax
        add     %rdx, %rax
        jmp     *%rax
        .endm

        // The comparison is two blocks up, a loop and a call between.
        FUNCTION bound_elsewhere
        cmp     $4, %rdi
        jae     12f
        lea     1f(%rip), %rdx
        mov     $3, %ecx
5:      add     $1, %rsi
        dec     %ecx
        jnz     5b
        test    $1, %sil
        jz      6f
        xor     $0x55, %rsi
6:      JUMP
        TARGETS
        .section .rodata
        .balign 4
1:      .long   10b - 1b, 11b - 1b, 12b - 1b, 13b - 1b
        // Numbers that would be valid entries.
        .long   10b - 1b, 11b - 1b + 1, 10b - 1b - 3
        .text

        FUNCTION by_mask
        and     $3, %edi
        lea     1f(%rip), %rdx
        JUMP
        TARGETS
        .section .rodata
1:      .long   13b - 1b, 12b - 1b, 11b - 1b, 10b - 1b
        .text

        // The index is a byte of a table of classes: its values, not its width, bound the jump.
        FUNCTION by_width
        and     $3, %edi
        lea     2f(%rip), %rdx
        movzbl  (%rdx,%rdi), %edi
        lea     1f(%rip), %rdx
        JUMP
        TARGETS
        .section .rodata
2:      .byte   0, 1, 3, 2
        .balign 4
1:      .long   10b - 1b, 13b - 1b, 12b - 1b, 11b - 1b
        .text

        FUNCTION by_shift
        shr     $62, %rdi
        lea     1f(%rip), %rdx
        JUMP
        TARGETS
        .section .rodata
1:      .long   12b - 1b, 13b - 1b, 10b - 1b, 11b - 1b
        .text

        // Two tables without a gap, the second reached by its own jump.
        FUNCTION neighbours
        cmp     $4, %rdi
        ja      12f
        je      7f
        lea     1f(%rip), %rdx
        JUMP
7:      mov     %rsi, %rdi
        and     $1, %edi
        lea     2f(%rip), %rdx
        JUMP
        TARGETS
        .section .rodata
1:      .long   10b - 1b, 11b - 1b, 13b - 1b, 12b - 1b
2:      .long   11b - 2b, 13b - 2b
        .text

        // The default is the fall-through, the comparison is inverse and on another copy of the index.
        FUNCTION inverse
        mov     %rdi, %r8
        sub     $2, %r8
        cmp     $3, %r8
        jbe     7f
        mov     %rsi, %rax
        ret
7:      lea     1f(%rip), %rdx
        movslq  (%rdx,%r8,4), %rax
        add     %rdx, %rax
        jmp     *%rax
        TARGETS
        .section .rodata
1:      .long   11b - 1b, 10b - 1b, 13b - 1b, 12b - 1b
        .text

        // No bound at all: the caller is trusted, as with __builtin_unreachable.
        FUNCTION trusted
        lea     1f(%rip), %rdx
        JUMP
        TARGETS
        .section .rodata
1:      .long   13b - 1b, 10b - 1b, 11b - 1b
        .section .note.GNU-stack, "", @progbits
