// lab_run of lab.h: rdi = piece, rsi = registers before, rdx = registers after.
        .text
        .globl  lab_run
        .type   lab_run, @function
lab_run:
        endbr64
        push    %rbx
        push    %rbp
        push    %r12
        push    %r13
        push    %r14
        push    %r15
        mov     %rsp, lab_saved_rsp(%rip)
        mov     %rdx, lab_after(%rip)
        lea     lab_stack_top-16(%rip), %rsp
        lea     lab_back(%rip), %rax
        mov     %rax, (%rsp)
        mov     %rdi, 8(%rsp)
        push    128(%rsi)
        popfq
        mov     0(%rsi), %rax
        mov     8(%rsi), %rcx
        mov     16(%rsi), %rdx
        mov     24(%rsi), %rbx
        mov     40(%rsi), %rbp
        mov     56(%rsi), %rdi
        mov     64(%rsi), %r8
        mov     72(%rsi), %r9
        mov     80(%rsi), %r10
        mov     88(%rsi), %r11
        mov     96(%rsi), %r12
        mov     104(%rsi), %r13
        mov     112(%rsi), %r14
        mov     120(%rsi), %r15
        mov     48(%rsi), %rsi
        jmp     *8(%rsp)
lab_back:
        mov     %rsp, lab_rsp_after(%rip)
        push    %rax
        mov     lab_after(%rip), %rax
        pushfq
        pop     128(%rax)
        mov     %rcx, 8(%rax)
        mov     %rdx, 16(%rax)
        mov     %rbx, 24(%rax)
        mov     %rbp, 40(%rax)
        mov     %rsi, 48(%rax)
        mov     %rdi, 56(%rax)
        mov     %r8, 64(%rax)
        mov     %r9, 72(%rax)
        mov     %r10, 80(%rax)
        mov     %r11, 88(%rax)
        mov     %r12, 96(%rax)
        mov     %r13, 104(%rax)
        mov     %r14, 112(%rax)
        mov     %r15, 120(%rax)
        pop     0(%rax)
        mov     lab_rsp_after(%rip), %rcx
        mov     %rcx, 32(%rax)
        mov     lab_saved_rsp(%rip), %rsp
        cld
        pop     %r15
        pop     %r14
        pop     %r13
        pop     %r12
        pop     %rbp
        pop     %rbx
        ret
        .size   lab_run, .-lab_run

        .bss
        .balign 4096
        .globl  lab_stack_top
        .skip   16384
lab_stack_top:
        .skip   64
lab_saved_rsp:
        .skip   8
lab_rsp_after:
        .skip   8
lab_after:
        .skip   8
        .section .note.GNU-stack, "", @progbits
