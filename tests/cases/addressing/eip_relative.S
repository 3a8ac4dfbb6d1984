        .macro  function name
        .globl  \name
        .type   \name, @function
        .balign 16
\name:  .cfi_startproc
        .endm
        .macro  ends name
        ret
        .cfi_endproc
        .size   \name, .-\name
        .endm

        .text
        function load
        .byte   0x67
        mov     value(%rip), %rax
        ends    load

        function store
        .byte   0x67
        mov     %rdi, value(%rip)
        ends    store

        function add_to
        .byte   0x67
        addq    $0x12345678, value(%rip)
        .byte   0x67
        lea     value(%rip), %rax
        add     (%rax), %rdi
        mov     %rdi, %rax
        ends    add_to

        // A pointer that lies there.
        function through
        .byte   0x67
        jmp     *pointer(%rip)
        ends    through

        // An address that does not lie below 4 GiB is cut.
        function cut
        .byte   0x67, 0x48, 0x8d, 0x05
        .long   -0x7fffffff
        lea     cut(%rip), %rcx
        sub     %rcx, %rax
        ends    cut

        .data
        .balign 8
value:  .quad   0
pointer: .quad  load
        .section .note.GNU-stack, "", @progbits
