// Every base, index, scale and displacement size, each as a load, a store and a read-modify-write that also uses and sets
// the carry flag. A row of the table: the three pieces, base and index register numbers (16: none), scale, displacement.
        .macro  ONE base, basenum, index, indexnum, scale, disp
        .text
load\@: mov     \disp\()(\base, \index, \scale), %r10
        jmp     *(%rsp)
store\@:mov     %r11, \disp\()(\base, \index, \scale)
        jmp     *(%rsp)
rmw\@:  adc     %r11, \disp\()(\base, \index, \scale)
        jmp     *(%rsp)
        .section .data.rel.ro, "aw"
        .quad   load\@, store\@, rmw\@
        .byte   \basenum, \indexnum, \scale, 0
        .long   \disp
        .endm

        .macro  ONE_PLAIN base, basenum, disp
        .text
load\@: mov     \disp\()(\base), %r10
        jmp     *(%rsp)
store\@:mov     %r11, \disp\()(\base)
        jmp     *(%rsp)
rmw\@:  adc     %r11, \disp\()(\base)
        jmp     *(%rsp)
        .section .data.rel.ro, "aw"
        .quad   load\@, store\@, rmw\@
        .byte   \basenum, 16, 1, 0
        .long   \disp
        .endm

        .macro  ONE_INDEX index, indexnum, scale, disp
        .text
load\@: mov     \disp\()(, \index, \scale), %r10
        jmp     *(%rsp)
store\@:mov     %r11, \disp\()(, \index, \scale)
        jmp     *(%rsp)
rmw\@:  adc     %r11, \disp\()(, \index, \scale)
        jmp     *(%rsp)
        .section .data.rel.ro, "aw"
        .quad   load\@, store\@, rmw\@
        .byte   16, \indexnum, \scale, 0
        .long   \disp
        .endm

        .macro  PAIR base, basenum, index, indexnum
        .if     (\basenum + \indexnum) % 3 == 0
        ONE     \base, \basenum, \index, \indexnum, 1, 0
        ONE     \base, \basenum, \index, \indexnum, 2, 24
        ONE     \base, \basenum, \index, \indexnum, 4, -0x12345
        ONE     \base, \basenum, \index, \indexnum, 8, -128
        .endif
        .if     (\basenum + \indexnum) % 3 == 1
        ONE     \base, \basenum, \index, \indexnum, 1, 127
        // (Near the end of the range off rsp: see rsp-extreme.c.)
        .if     \basenum == 4
        ONE     \base, \basenum, \index, \indexnum, 2, 0x7ffffc00
        .else
        ONE     \base, \basenum, \index, \indexnum, 2, 0x7fffffff
        .endif
        ONE     \base, \basenum, \index, \indexnum, 4, 0
        ONE     \base, \basenum, \index, \indexnum, 8, 128
        .endif
        .if     (\basenum + \indexnum) % 3 == 2
        ONE     \base, \basenum, \index, \indexnum, 1, -0x80000000
        ONE     \base, \basenum, \index, \indexnum, 2, 0
        ONE     \base, \basenum, \index, \indexnum, 4, -1
        ONE     \base, \basenum, \index, \indexnum, 8, 0
        .endif
        .endm

        .macro  BASE base, basenum
        PAIR    \base, \basenum, %rax, 0
        PAIR    \base, \basenum, %rcx, 1
        PAIR    \base, \basenum, %rdx, 2
        PAIR    \base, \basenum, %rbx, 3
        PAIR    \base, \basenum, %rbp, 5
        PAIR    \base, \basenum, %rsi, 6
        PAIR    \base, \basenum, %rdi, 7
        PAIR    \base, \basenum, %r8, 8
        PAIR    \base, \basenum, %r9, 9
        PAIR    \base, \basenum, %r10, 10
        PAIR    \base, \basenum, %r11, 11
        PAIR    \base, \basenum, %r12, 12
        PAIR    \base, \basenum, %r13, 13
        PAIR    \base, \basenum, %r14, 14
        PAIR    \base, \basenum, %r15, 15
        .endm

        .macro  ALONE reg, num
        ONE_PLAIN \reg, \num, 0
        ONE_PLAIN \reg, \num, 8
        ONE_PLAIN \reg, \num, -0x1000
        ONE_INDEX \reg, \num, 1, 64
        ONE_INDEX \reg, \num, 2, 0
        ONE_INDEX \reg, \num, 4, -8
        ONE_INDEX \reg, \num, 8, 0x12345678
        .endm

        .section .data.rel.ro, "aw"
        .balign 8
        .globl  combos
combos:
        BASE    %rax, 0
        BASE    %rcx, 1
        BASE    %rdx, 2
        BASE    %rbx, 3
        BASE    %rsp, 4
        BASE    %rbp, 5
        BASE    %rsi, 6
        BASE    %rdi, 7
        BASE    %r8, 8
        BASE    %r9, 9
        BASE    %r10, 10
        BASE    %r11, 11
        BASE    %r12, 12
        BASE    %r13, 13
        BASE    %r14, 14
        BASE    %r15, 15
        ALONE   %rax, 0
        ALONE   %rcx, 1
        ALONE   %rdx, 2
        ALONE   %rbx, 3
        ALONE   %rbp, 5
        ALONE   %rsi, 6
        ALONE   %rdi, 7
        ALONE   %r8, 8
        ALONE   %r9, 9
        ALONE   %r10, 10
        ALONE   %r11, 11
        ALONE   %r12, 12
        ALONE   %r13, 13
        ALONE   %r14, 14
        ALONE   %r15, 15
        .section .data.rel.ro, "aw"
        .quad   0
        .section .note.GNU-stack, "", @progbits
