        .text
        .globl  table_in_text
        .balign 8
table_in_text:
        .quad   1, 10, 100, 1000, 10000, 100000, 0xcccccccccccccccc, 0x90909090c3c3c3c3
        .globl  sum_table
        .type   sum_table, @function
sum_table:
        lea     table_in_text(%rip), %rax
        xor     %edx, %edx
        inc     %rdi
1:      add     -8(%rax,%rdi,8), %rdx
        dec     %rdi
        jnz     1b
        mov     %rdx, %rax
        ret
        .size   sum_table, .-sum_table

        .globl  round_constants
        .balign 16
round_constants:
        .long   0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5

        .globl  inline_constant
        .type   inline_constant, @function
inline_constant:
        jmp     1f
        .balign 8
2:      .quad   0x123456789abcdef0
        .double 2.5
1:      mov     2b(%rip), %rax
        imul    %rdi, %rax
        cvtsi2sd %rdi, %xmm0
        mulsd   2b+8(%rip), %xmm0
        cvttsd2si %xmm0, %rdx
        add     %rdx, %rax
        ret
        .size   inline_constant, .-inline_constant

        // Round constants behind the function, addressed off a label in the middle of it.
        .globl  crypt
        .type   crypt, @function
crypt:  lea     3f(%rip), %rcx
        mov     $4, %r8d
        mov     %rdi, %rax
1:      add     4f-3f(%rcx), %rax
        rol     $13, %rax
        xor     %rsi, %rax
        add     $8, %rcx
        dec     %r8d
3:      jnz     1b
        ret
        .size   crypt, .-crypt
        .balign 16
4:      .quad   0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc

        .globl  after_string
        .type   after_string, @function
after_string:
        lea     1f(%rip), %rax
        movzbl  (%rax), %eax
        add     %rdi, %rax
        jmp     2f
1:      .asciz  "a string that the code jumps over"
2:      lea     (%rax,%rax,2), %rax
        ret
        .size   after_string, .-after_string

        .globl  text_of
        .type   text_of, @function
text_of:
        lea     1f(%rip), %rdx
        movslq  (%rdx,%rdi,4), %rax
        add     %rdx, %rax
        ret
        .balign 4
1:      .long   2f-1b, 3f-1b, 4f-1b
2:      .asciz  "alpha "
3:      .asciz  "beta "
4:      .asciz  "gamma "
        .size   text_of, .-text_of
        .section .note.GNU-stack, "", @progbits
