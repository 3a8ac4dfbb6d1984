        .text
        .balign 64, 0xcc
        .globl  padded
        .type   padded, @function
padded: xor     %eax, %eax
        test    %rsi, %rsi
        jz      3f
        .balign 64
1:      mov     (%rdi), %rdx
        .byte   0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
        add     %rsi, %rdx
        mov     %rdx, 8(%rdi)
        xchg    %rdx, (%rdi)
        lea     0(%rsi), %rsi
        add     %rdx, %rax
        dec     %rsi
        jnz     1b
        jmp     3f
        .byte   0xff, 0xff, 0xf0, 0x0f, 0x06, 0xc4
        .balign 32, 0
3:      ret
        .balign 128, 0
        .size   padded, .-padded
        .section .note.GNU-stack, "", @progbits
