        .text
        // Flags from rdi, a checked load of the operand, the instruction, and flags to rax.
        .macro  behind name, instruction:vararg
        .globl  behind_\name
        .type   behind_\name, @function
        .balign 16
behind_\name:
        .cfi_startproc
        mov     $1000, %eax
        xor     %edx, %edx
        pushfq
        .cfi_adjust_cfa_offset 8
        pop     %rcx
        .cfi_adjust_cfa_offset -8
        and     $~0x8d5, %rcx
        or      %rdi, %rcx
        push    %rcx
        .cfi_adjust_cfa_offset 8
        popfq
        .cfi_adjust_cfa_offset -8
        mov     (%rsi), %r8
        \instruction
        pushfq
        .cfi_adjust_cfa_offset 8
        pop     %rax
        .cfi_adjust_cfa_offset -8
        ret
        .cfi_endproc
        .size   behind_\name, .-behind_\name
        .endm

        behind  div, div %r8
        behind  idiv, idiv %r8
        behind  mul, mul %r8
        behind  imul, imul %r8d
        behind  product, imul %r8, %rax
        behind  multiple, imul $77, %r8w, %ax
        behind  bsf, bsf %r8, %rax
        behind  bsr, bsr %r8, %rax
        behind  bt, bt %r8, %rax
        behind  btc, btc %r8, %rax
        .section .note.GNU-stack, "", @progbits
