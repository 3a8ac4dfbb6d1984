#include "zoo.inc"
        TABLE
        // Two-operand arithmetic: register from memory, memory from register, memory from immediates.
        .macro  ARITH op, mask
        P       \mask, \op %r11b, (%rdi)
        P       \mask, \op %ah, (%rdi)
        P       \mask, \op %bh, 2(%rdi)
        P       \mask, \op %sil, (%rdi)
        P       \mask, \op %r11w, (%rdi)
        P       \mask, \op %r11d, (%rdi)
        P       \mask, \op %r11, (%rdi)
        P       \mask, \op (%rdi), %r10b
        P       \mask, \op (%rdi), %dh
        P       \mask, \op (%rdi), %r10w
        P       \mask, \op (%rdi), %r10d
        P       \mask, \op (%rdi), %r10
        P       \mask, \op\()b $0x81, (%rdi)
        P       \mask, \op\()w $0x1234, (%rdi)
        P       \mask, \op\()w $-3, (%rdi)
        P       \mask, \op\()l $0x12345678, (%rdi)
        P       \mask, \op\()q $-0x12345678, (%rdi)
        P       \mask, \op\()q $5, (%rdi)
        .endm
        ARITH   add, ALL
        ARITH   adc, ALL
        ARITH   sub, ALL
        ARITH   sbb, ALL
        ARITH   cmp, ALL
        ARITH   and, LOGIC
        ARITH   or, LOGIC
        ARITH   xor, LOGIC
        P       LOGIC, testb %r11b, (%rdi)
        P       LOGIC, testb %ch, (%rdi)
        P       LOGIC, testw %r11w, (%rdi)
        P       LOGIC, testl %r11d, (%rdi)
        P       LOGIC, testq %r11, (%rdi)
        P       LOGIC, testb $0x18, (%rdi)
        P       LOGIC, testl $0x10000, (%rdi)
        .macro  UNARY op
        P       ALL, \op\()b (%rdi)
        P       ALL, \op\()w (%rdi)
        P       ALL, \op\()l (%rdi)
        P       ALL, \op\()q (%rdi)
        .endm
        UNARY   inc
        UNARY   dec
        UNARY   neg
        UNARY   not

        .macro  SHIFTS op, one, many, cl
        P       \one, \op\()b (%rdi)
        P       \one, \op\()q (%rdi)
        P       \many, \op\()b $3, (%rdi)
        P       \many, \op\()w $9, (%rdi)
        P       \many, \op\()l $17, (%rdi)
        P       \many, \op\()q $33, (%rdi)
        P       \cl, \op\()w %cl, (%rdi)
        P       \cl, \op\()l %cl, (%rdi)
        P       \cl, \op\()q %cl, (%rdi)
        // A count of zero leaves the flags alone, so they are live before the instruction.
        PIECE   "\op by zero", ALL
        mov     $64, %cl
        \op\()q %cl, (%rdi)
        END
        .endm
        SHIFTS  shl, LOGIC, SHIFT, SHIFTCL
        SHIFTS  shr, LOGIC, SHIFT, SHIFTCL
        SHIFTS  sar, LOGIC, SHIFT, SHIFTCL
        SHIFTS  rol, ALL, ROTATE, ROTATE
        SHIFTS  ror, ALL, ROTATE, ROTATE
        SHIFTS  rcl, ALL, ROTATE, ROTATE
        SHIFTS  rcr, ALL, ROTATE, ROTATE
        P       SHIFT, shldq $7, %r11, (%rdi)
        P       SHIFT, shrdl $7, %r11d, (%rdi)
        P       SHIFTCL, shldq %cl, %r11, (%rdi)
        P       SHIFTCL, shrdl %cl, %r11d, (%rdi)

        P       MULTIPLY, mulb (%rdi)
        P       MULTIPLY, mulw (%rdi)
        P       MULTIPLY, mull (%rdi)
        P       MULTIPLY, mulq (%rdi)
        P       MULTIPLY, imulb (%rdi)
        P       MULTIPLY, imulq (%rdi)
        P       MULTIPLY, imul (%rdi), %r10w
        P       MULTIPLY, imul (%rdi), %r10
        P       MULTIPLY, imul $1000, (%rdi), %r10d
        P       MULTIPLY, imul $-3, (%rdi), %r10
        PIECE   "div", ZOO_NONE
        xor     %edx, %edx
        orb     $1, 3(%rdi)
        divl    (%rdi)
        divq    (%rdi)
        END
        PIECE   "idiv", ZOO_NONE
        orb     $1, 1(%rdi)
        movsbw  %al, %ax
        cwd
        idivw   (%rdi)
        cqo
        idivq   (%rdi)
        END

        // Moves, conversions, conditional moves and sets.
        P       ALL, mov (%rdi), %r10b
        P       ALL, mov (%rdi), %ah
        P       ALL, mov %ch, 1(%rdi)
        P       ALL, mov %dil, (%rdi)
        P       ALL, mov (%rdi), %r10w
        P       ALL, mov %r11w, (%rdi)
        P       ALL, mov (%rdi), %r10d
        P       ALL, mov %r11d, (%rdi)
        P       ALL, mov (%rdi), %rdi
        P       ALL, movb $0x5a, (%rdi)
        P       ALL, movw $0x5aa5, (%rdi)
        P       ALL, movl $0x12345678, (%rdi)
        P       ALL, movq $-2, (%rdi)
        P       ALL, movzbw (%rdi), %r10w
        P       ALL, movzbl (%rdi), %eax
        P       ALL, movzwl (%rdi), %r10d
        P       ALL, movsbl (%rdi), %r10d
        P       ALL, movsbq (%rdi), %r10
        P       ALL, movswq (%rdi), %rcx
        P       ALL, movslq (%rdi), %r10
        P       ALL, movnti %r11, (%rdi)
        P       ALL, movnti %r11d, (%rdi)
        .irp    cc, o, no, c, nc, z, nz, be, a, s, ns, p, np, l, ge, le, g
        P       ALL, cmov\cc (%rdi), %r10
        P       ALL, cmov\cc (%rdi), %r10w
        P       ALL, set\cc (%rdi)
        .endr
        P       ALL, xchg %r11b, (%rdi)
        P       ALL, xchg %ah, (%rdi)
        P       ALL, xchg %r11w, (%rdi)
        P       ALL, xchg %r11d, (%rdi)
        P       ALL, xchg %r11, (%rdi)
        P       ALL, xadd %r11b, (%rdi)
        P       ALL, xadd %r11, (%rdi)
        P       ALL, cmpxchg %r11b, (%rdi)
        P       ALL, cmpxchg %r11, (%rdi)
        PIECE   "cmpxchg that succeeds", ALL
        mov     (%rdi), %rax
        cmpxchg %r11, (%rdi)
        END
        P       ALL, cmpxchg8b (%rdi)
        PIECE   "cmpxchg8b that succeeds", ALL
        mov     (%rdi), %eax
        mov     4(%rdi), %edx
        cmpxchg8b (%rdi)
        END

        // Bit tests: a register offset selects a bit outside the addressed word.
        .irp    op, bt, bts, btr, btc
        P       BITTEST, \op\()q $5, (%rdi)
        P       BITTEST, \op\()w $12, (%rdi)
        PIECE   "\op far behind", BITTEST
        mov     $1500, %r11
        \op     %r11, (%rdi)
        END
        PIECE   "\op far before", BITTEST
        mov     $-1000, %r11d
        \op     %r11d, (%rdi)
        END
        PIECE   "\op word", BITTEST
        mov     $777, %r11w
        \op     %r11w, (%rdi)
        END
        PIECE   "\op another page", BITTEST
        mov     $65536+2048+128, %r11
        \op     %r11, (%rdi)
        END
        .endr
        P       SCAN, bsf (%rdi), %r10
        P       SCAN, bsr (%rdi), %r10d
        P       0x41, tzcnt (%rdi), %r10
        P       0x41, lzcnt (%rdi), %r10
        P       ALL, popcnt (%rdi), %r10
        P       ALL, crc32b (%rdi), %r10
        P       ALL, crc32q (%rdi), %r10
        P       ALL, movbe (%rdi), %r10
        P       ALL, movbe %r11d, (%rdi)
        P       ALL, movbe %r11w, (%rdi)
        PIECE   "xlat", ALL
        mov     %rdi, %rbx
        and     $0x1f, %eax
        xlat
        END
        PIECE   "xlat with flags live", ALL
        mov     %rdi, %rbx
        movzbl  %cl, %eax
        xlat
        adc     %al, %r12b
        END

        // Flags that live across accesses.
        PIECE   "adc chain over loads and stores", ALL
        mov     (%rdi), %r8
        add     (%rsi), %r8
        mov     %r8, (%rdi)
        mov     8(%rdi), %r9
        adc     8(%rsi), %r9
        mov     %r9, 8(%rdi)
        mov     16(%rdi), %r10
        adc     16(%rsi), %r10
        mov     %r10, 16(%rdi)
        sbb     %rax, %rax
        END
        PIECE   "sbb chain with lea and dec between", ALL
        mov     $4, %ecx
        xor     %eax, %eax
1:      mov     (%rdi), %rax
        sbb     (%rsi), %rax
        mov     %rax, (%rdi)
        lea     8(%rdi), %rdi
        lea     8(%rsi), %rsi
        dec     %ecx
        jnz     1b
        END
        PIECE   "compare, load, branch", ALL
        cmp     %r8, %r9
        mov     (%rdi), %rax
        mov     (%rsi), %rdx
        jb      1f
        xchg    %rax, %rdx
1:      mov     %rax, (%rdi)
        seto    (%rsi)
        END
        PIECE   "lahf across a load", ALL
        lahf
        mov     (%rdi), %r10
        mov     %r10, (%rsi)
        sahf
        mov     8(%rdi), %r11
        END
        PIECE   "overflow flag across a store", ALL
        add     %r8b, %r9b
        mov     %r9, (%rdi)
        mov     (%rsi), %r10
        seto    %al
        jo      1f
        incq    (%rdi)
1:      END
        PIECE   "rotate through carry over loads", ALL
        bt      $3, %r8
        mov     (%rdi), %rax
        rcr     %rax
        mov     (%rsi), %rdx
        rcr     %rdx
        mov     %rdx, (%rsi)
        mov     %rax, (%rdi)
        END
        PIECE   "stc, load, adc", ALL
        stc
        mov     (%rdi), %rax
        adc     $0, %rax
        clc
        mov     %rax, (%rdi)
        adc     $0, %rax
        cmc
        mov     (%rsi), %rbx
        adc     $0, %rbx
        END
        PIECE   "pushf across accesses", ALL
        pushfq
        mov     (%rdi), %rax
        add     %rax, (%rsi)
        popfq
        mov     8(%rdi), %r9
        END
        PIECE   "adcx and adox", ALL
        adcx    (%rdi), %r8
        adox    (%rsi), %r9
        adcx    8(%rdi), %r10
        adox    8(%rsi), %r11
        END

        // Stack and control transfers through memory.
        PIECE   "push and pop memory", ALL
        push    (%rdi)
        pushw   2(%rsi)
        popw    (%rdi)
        pop     (%rsi)
        END
        PIECE   "pop to rsp-relative and back", ALL
        push    %r11
        push    %r12
        pop     (%rsp)
        push    (%rsp)
        pop     (%rdi)
        pop     (%rsi)
        END
        // Callers through a pointer know the ABI only: what it lets a callee change is set afterwards.
        PIECE   "call through memory", ALL
        lea     zoo_callee(%rip), %rax
        mov     %rax, (%rdi)
        mov     %rdi, %rbx
        mov     %rsi, %rbp
        call    *(%rdi)
        mov     %rbx, %rdi
        mov     %rbp, %rsi
        movq    $0, (%rdi)
        xor     %ecx, %ecx
        xor     %edx, %edx
        xor     %r8d, %r8d
        xor     %r9d, %r9d
        xor     %r10d, %r10d
        xor     %r11d, %r11d
        END
        PIECE   "jump through memory", ALL
        lea     1f(%rip), %rax
        mov     %rax, 8(%rdi)
        mov     $1, %eax
        jmp     *8(%rdi)
        mov     $2, %eax
1:      movq    $0, 8(%rdi)
        END
        PIECE   "enter and leave", ALL
        enter   $32, $0
        mov     (%rdi), %rax
        mov     %rax, -8(%rbp)
        mov     %r11, -16(%rbp)
        mov     -8(%rbp), %r10
        leave
        END
        PIECE   "nested enter", ALL
        push    %rbp
        mov     %rsp, %rbp
        enter   $16, $1
        mov     %rax, -24(%rbp)
        mov     (%rdi), %rax
        add     %rax, -24(%rbp)
        mov     -24(%rbp), %rax
        leave
        pop     %rbp
        END
        PIECE   "red zone", ALL
        mov     %r8, -8(%rsp)
        mov     %r9, -64(%rsp)
        mov     %r12, -128(%rsp)
        mov     (%rdi), %r10
        add     %r10, (%rsi)
        mov     -8(%rsp), %rax
        mov     -64(%rsp), %rbx
        mov     -128(%rsp), %rcx
        END
        PIECE   "BMI", ALL
        andn    (%rdi), %r8, %rax
        END
        PIECE   "BMI shifts keep flags", ALL
        shlx    %r8, (%rdi), %rax
        sarx    %r8, (%rsi), %rdx
        rorx    $5, (%rdi), %rbx
        mulx    (%rsi), %r9, %r10
        adc     $0, %rax
        END
        PIECE   "pdep and pext", ALL
        pdep    (%rdi), %r8, %rax
        pext    (%rsi), %r8, %rbx
        END
        PIECE   "prefetch, lea and nop touch nothing", ALL
        prefetcht0 (%rax)
        lea     (%rax,%rbx,8), %rcx
        nopl    (%rax,%rax,1)
        nopw    %cs:0x200(%rax,%rax,1)
        prefetchw (%rdi)
        END
        TABLE_END

        .text
zoo_callee:
        mov     $77, %eax
        ret
