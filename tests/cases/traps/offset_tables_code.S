# An interpreter: rdi points to its dispatch table, rsi to its program, rax is its value.
        .text
        .globl  operations_begin, interpret, calls_begin
        .hidden operations_begin, calls_begin
        .type   operations_begin, @function
        .p2align 4
operations_begin:
        .cfi_startproc
op0:    add     $3, %rax
        movzbl  (%rsi), %ecx
        inc     %rsi
        jmp     *(%rdi,%rcx,8)
op1:    lea     (%rax,%rax,2), %rax
        movzbl  (%rsi), %ecx
        inc     %rsi
        jmp     *(%rdi,%rcx,8)
op2:    xor     $0x55, %rax
        movzbl  (%rsi), %ecx
        inc     %rsi
        jmp     *(%rdi,%rcx,8)
op3:    rol     $7, %rax
        movzbl  (%rsi), %ecx
        inc     %rsi
        jmp     *(%rdi,%rcx,8)
op4:    not     %rax
        movzbl  (%rsi), %ecx
        inc     %rsi
        jmp     *(%rdi,%rcx,8)
op5:    mov     %rax, %rdx
        shr     $5, %rdx
        xor     %rdx, %rax
        movzbl  (%rsi), %ecx
        inc     %rsi
        jmp     *(%rdi,%rcx,8)
op6:    sub     %rcx, %rax
        movzbl  (%rsi), %ecx
        inc     %rsi
        jmp     *(%rdi,%rcx,8)
op7:    ret
        .cfi_endproc
        .size   operations_begin, .-operations_begin

        .type   interpret, @function
interpret:
        .cfi_startproc
        mov     %rdx, %rax
        movzbl  (%rsi), %ecx
        inc     %rsi
        jmp     *(%rdi,%rcx,8)
        .cfi_endproc
        .size   interpret, .-interpret

        .type   calls_begin, @function
calls_begin:
        .cfi_startproc
call0:  lea     1(%rdi), %rax
        ret
call1:  lea     (%rdi,%rdi), %rax
        ret
call2:  mov     %rdi, %rax
        not     %rax
        ret
call3:  lea     -9(%rdi), %rax
        ret
        .cfi_endproc
        .size   calls_begin, .-calls_begin

        .section .rodata
        .globl  operation_distances, call_distances
        .hidden operation_distances, call_distances
        .p2align 2
operation_distances:
        .short  op0-operations_begin, op1-operations_begin, op2-operations_begin, op3-operations_begin
        .short  op4-operations_begin, op5-operations_begin, op6-operations_begin, op7-operations_begin
        .p2align 2
call_distances:
        .long   call0-calls_begin, call1-calls_begin, call2-calls_begin, call3-calls_begin
        .section .note.GNU-stack,"",@progbits
