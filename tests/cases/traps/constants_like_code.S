        .text
        // A frame that ends in a call which does not return, and behind it constants that decode.
        .globl  constants_behind_a_call
        .type   constants_behind_a_call, @function
constants_behind_a_call:
        .cfi_startproc
        test    %edi, %edi
        js      1f
        mov     %edi, %edi
        movdqu  2f(%rip), %xmm0
        movq    %xmm0, %rax
        lea     2f(%rip), %rdx
        add     8(%rdx,%rdi,8), %rax
        ret
1:      call    abort@PLT
        .cfi_endproc
        .size   constants_behind_a_call, .-constants_behind_a_call
        .balign 16
2:      .quad   0xc3c3909090909090, 0x90c3900590059005, 0xc358505850585058, 0xc3c8894890909090, 0xc3d08948c0314890

        // The address is copied and moved on before it is used, in a callee of its own convention.
        .globl  constants_through_a_callee
        .type   constants_through_a_callee, @function
constants_through_a_callee:
        .cfi_startproc
        push    %rbx
        .cfi_adjust_cfa_offset 8
        lea     3f(%rip), %rbx
        lea     16(%rbx), %r11
        and     $3, %edi
        call    4f
        add     (%rbx), %rax
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        ret
        .cfi_endproc
        .size   constants_through_a_callee, .-constants_through_a_callee
        .balign 16
3:      .quad   0xc3c8894890909090, 0xc3c3c3c3c3c3c3c3, 0xc390c390c390c390, 0xc358505850585058, 0x9090909090c3c931, 0xc3d089480000c031
4:      .cfi_startproc
        mov     (%r11,%rdi,8), %rax
        ret
        .cfi_endproc

        // Functions without symbol and frame, known only by their addresses, right beside constants.
        .balign 16
5:      .quad   0x428a2f98d728ae22, 0xc3c8894890909090
6:      mov     5b(%rip), %rax
        add     %rdi, %rax
        mov     %rax, %rdx
        shl     $7, %rdx
        xor     %rdx, %rax
        shr     $9, %rdx
        add     %rdx, %rax
        ret
7:      .quad   0x7137449123ef65cd, 0xc3c3c3c3c3c3c3c3
8:      xor     7b(%rip), %rdi
        mov     %rdi, %rax
        ret
        .globl  bare_function
        .type   bare_function, @function
bare_function:
        .cfi_startproc
        lea     6b(%rip), %rax
        lea     8b(%rip), %rdx
        test    $1, %dil
        cmovz   %rdx, %rax
        ret
        .cfi_endproc
        .size   bare_function, .-bare_function

        // Instructions of a processor that this is not, never reached.
        .globl  other_processor
        .type   other_processor, @function
other_processor:
        .cfi_startproc
        lea     1(%rdi), %rax
        test    %edi, %edi
        jns     9f
        rep xcryptecb
        xstore
        rep xsha1
9:      ret
        .cfi_endproc
        .size   other_processor, .-other_processor
        .section .note.GNU-stack, "", @progbits
