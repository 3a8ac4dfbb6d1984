        .text
#include "targets.inc"

        FUNCTION absolute8
        cmp     $5, %rdi
        ja      12f
        lea     1f(%rip), %rax
        jmp     *(%rax,%rdi,8)
        TARGETS
        .section .data.rel.ro, "aw"
        .balign 8
1:      .quad   10b, 11b, 12b, 13b, 10b
        .quad   11b
        .text

        FUNCTION relative4
        lea     1f(%rip), %rdx
        cmp     $6, %edi
        ja      12f
        movslq  (%rdx,%rdi,4), %rax
        add     %rdx, %rax
        jmp     *%rax
        TARGETS
        .section .rodata
        .balign 4
1:      .long   10b - 1b, 11b - 1b, 12b - 1b, 13b - 1b, 12b - 1b, 11b - 1b, 10b - 1b
        .text

        FUNCTION from_label
        cmp     $3, %rdi
        ja      12f
        lea     1f(%rip), %rcx
        mov     (%rcx,%rdi,4), %eax
        lea     10f(%rip), %rcx
        cltq
        add     %rcx, %rax
        jmp     *%rax
        TARGETS
        .section .rodata
1:      .long   10b - 10b, 11b - 10b, 12b - 10b, 13b - 10b
        .text

        // The table lies between the jump and its targets.
        FUNCTION in_text
        cmp     $4, %edi
        ja      12f
        lea     1f(%rip), %rdx
        movslq  (%rdx,%rdi,4), %rcx
        add     %rcx, %rdx
        jmp     *%rdx
        .balign 4
1:      .long   10f - 1b, 11f - 1b, 12f - 1b, 13f - 1b, 11f - 1b
        TARGETS

        FUNCTION shared_one
        and     $3, %edi
        lea     shared_table(%rip), %rdx
        movslq  (%rdx,%rdi,4), %rax
        add     %rdx, %rax
        jmp     *%rax
        FUNCTION shared_two
        add     $5, %rsi
        and     $3, %edi
        lea     shared_table(%rip), %rcx
        movslq  (%rcx,%rdi,4), %rax
        add     %rcx, %rax
        jmp     *%rax
        TARGETS
        .section .rodata
        .balign 4
shared_table:
        .long   10b - shared_table, 11b - shared_table, 12b - shared_table, 13b - shared_table
        .text

        FUNCTION memory_index
        mov     (%rdi), %rax
        cmp     $4, %rax
        ja      12f
        lea     1f(%rip), %rdx
        movslq  (%rdx,%rax,4), %rax
        add     %rdx, %rax
        jmp     *%rax
        TARGETS
        .section .rodata
        .balign 4
1:      .long   13b - 1b, 12b - 1b, 11b - 1b, 10b - 1b, 13b - 1b
        .text

        // Targets at fixed distances, reached by arithmetic on a byte of a table.
        FUNCTION byte_offsets
        and     $3, %edi
        lea     1f(%rip), %rdx
        movzbl  (%rdx,%rdi), %eax
        lea     2f(%rip), %rdx
        add     %rdx, %rax
        jmp     *%rax
2:
        TARGETS
        .section .rodata
1:      .byte   10b - 2b, 11b - 2b, 12b - 2b, 13b - 2b
        .text

        // As clang writes a switch whose other cases cannot happen: nothing compares, and those cases lead behind the last instruction.
        FUNCTION impossible_cases
        .cfi_startproc
        sub     $8, %rsp
        .cfi_adjust_cfa_offset 8
        lea     1f(%rip), %rdx
        movslq  (%rdx,%rdi,4), %rax
        add     %rdx, %rax
        jmp     *%rax
2:      add     $8, %rsp
        .cfi_adjust_cfa_offset -8
        lea     7(%rsi), %rax
        ret
        .cfi_adjust_cfa_offset 8
3:      add     $8, %rsp
        .cfi_adjust_cfa_offset -8
        lea     (%rsi,%rsi,4), %rax
        ret
        .cfi_adjust_cfa_offset 8
4:      call    abort@PLT
5:
        .cfi_endproc
        .section .rodata
        .balign 4
1:      .long   2b - 1b, 5b - 1b, 5b - 1b, 3b - 1b, 4b - 1b, 5b - 1b, 2b - 1b
        .text

        // The same with a comparison.
        FUNCTION compared_cases
        .cfi_startproc
        mov     %edi, %edi
        cmp     $6, %edi
        ja      3f
        lea     1f(%rip), %rdx
        movslq  (%rdx,%rdi,4), %rax
        add     %rdx, %rax
        jmp     *%rax
2:      lea     9(%rsi), %rax
        ret
3:      mov     %rsi, %rax
        rol     $9, %rax
        ret
4:      call    abort@PLT
5:
        .cfi_endproc
        .section .rodata
        .balign 4
1:      .long   2b - 1b, 5b - 1b, 5b - 1b, 3b - 1b, 4b - 1b, 5b - 1b, 2b - 1b
        .text
        .section .note.GNU-stack, "", @progbits
