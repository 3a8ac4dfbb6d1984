// state_*(rdi = memory, rsi = contents before, rdx = where to put the contents afterwards): one 64-byte slot per register.
        .text
        // Accesses of every kind of check; in a shared run they miss at random.
accesses:
        push    %rbx
        mov     $100, %r8d
1:      mov     %r8d, %eax
        imul    $2473, %eax, %eax
        and     $8191, %eax
        mov     (%rdi,%rax), %rcx
        add     $1, %rcx
        mov     %rcx, (%rdi,%rax)
        lock addq $3, 100(%rdi,%rax)
        mov     200(%rdi,%rax), %r9w
        mov     %r9w, 319(%rdi,%rax)
        push    %rdi
        push    %rsi
        lea     400(%rdi,%rax), %rsi
        lea     700(%rdi,%rax), %rdi
        mov     $130, %ecx
        rep movsb
        pop     %rsi
        pop     %rdi
        dec     %r8d
        jnz     1b
        pop     %rbx
        ret

        .globl  state_avx2
state_avx2:
        fldpi
        fld1
        stmxcsr -8(%rsp)
        movl    $0x7f80, -4(%rsp)
        ldmxcsr -4(%rsp)
        .set    n, 0
        .irp    r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vmovdqu \r*64(%rsi), %ymm\r
        vmovdqu \r*64+32(%rsi), %ymm\r
        .endr
        sub     $24, %rsp
        call    accesses
        add     $24, %rsp
        // The slots' first halves are copied, the second halves come from the registers.
        .irp    r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vmovdqu %ymm\r, \r*64+32(%rdx)
        vmovdqu \r*64(%rsi), %ymm\r
        vmovdqu %ymm\r, \r*64(%rdx)
        .endr
        sub     $24, %rsp
        stmxcsr 4(%rsp)
        mov     4(%rsp), %eax
        and     $0xffc0, %eax
        cmp     $0x7f80, %eax
        je      1f
        movb    $0xee, (%rdx)
1:      // st(0) is 1 and st(1) is pi still: their product is pi.
        fmulp
        fldpi
        fcomip
        fstp    %st(0)
        je      2f
        movb    $0xdd, 1(%rdx)
2:      ldmxcsr 16(%rsp)
        add     $24, %rsp
        vzeroupper
        ret

        .globl  state_avx512
state_avx512:
        .irp    r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        vmovdqu64 \r*64(%rsi), %zmm\r
        .endr
        .irp    k, 0, 1, 2, 3, 4, 5, 6, 7
        kmovq   (32+\k)*64(%rsi), %k\k
        .endr
        call    accesses
        .irp    r, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        vmovdqu64 %zmm\r, \r*64(%rdx)
        .endr
        .irp    k, 0, 1, 2, 3, 4, 5, 6, 7
        vmovdqu64 (32+\k)*64(%rsi), %zmm0
        vmovdqu64 %zmm0, (32+\k)*64(%rdx)
        kmovq   %k\k, (32+\k)*64(%rdx)
        .endr
        vzeroupper
        ret
        .section .note.GNU-stack, "", @progbits
