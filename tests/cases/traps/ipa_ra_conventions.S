        .text
        // rcx = the word at [rdi], carry = it is odd; nothing else changes.
next_word:
        push    %rax
        mov     (%rdi), %rcx
        lea     8(%rdi), %rdi
        mov     %rcx, %rax
        shr     %rax
        pop     %rax
        ret
        // Adds r11 to [r10]; all flags and registers stay.
quiet_add:
        pushfq
        add     %r11, (%r10)
        popfq
        ret
        // Two results: rdx and the zero flag.
find:   mov     (%rsi), %rdx
        add     $8, %rsi
        cmp     %r8, %rdx
        ret

        .globl  uses_conventions
        .type   uses_conventions, @function
uses_conventions:
        push    %rbx
        push    %r12
        mov     %rsi, %rbx
        mov     %rdi, %r12
        mov     $5, %r8d
        mov     $7, %r9d
        mov     $11, %r11d
        xor     %eax, %eax
        xor     %edx, %edx
1:      call    next_word
        adc     %rcx, %rax
        mov     %r12, %r10
        sub     $1, %rbx
        call    quiet_add
        jnz     1b
        mov     %r12, %rsi
        mov     (%r12), %r8
        call    find
        jne     2f
        add     %rdx, %rax
        add     %r9, %rax
        add     %r11, %rax
2:      add     %r8, %rax
        pop     %r12
        pop     %rbx
        ret
        .section .note.GNU-stack, "", @progbits
