/* Three functions with frames of their own; control passes from each to the next. */
        .text
        .macro  FUNCTION name
        .globl  \name
        .type   \name, @function
\name:
        .cfi_startproc
        .endm
        .macro  END name
        .cfi_endproc
        .size   \name, . - \name
        .endm

        .balign 16
        FUNCTION falls
        lea     3(%rdi,%rdi,4), %rdi
        END falls
        FUNCTION through
        mov     %rdi, %rax
        rol     $11, %rax
        xor     %rdi, %rax
        ret
        END through

        /* The called function stands behind the call: it is run twice, by the call and by its return. */
        .balign 16
        FUNCTION called_next
        mov     $1, %eax
        call    behind
        END called_next
        FUNCTION behind
        lea     7(%rax,%rax,2), %rax
        add     %rdi, %rax
        ret
        END behind
        .section .note.GNU-stack, "", @progbits
