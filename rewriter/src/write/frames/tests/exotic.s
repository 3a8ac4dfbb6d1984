# What assembly and odd compilers put into unwind tables and gcc's C++ never does: a signal frame that begins a byte early,
# every register rule, argument sizes, landing pads below their function with a base of their own, four-byte call sites, a
# call site of no bytes, an LSDA without types, a null LSDA, a frame for code that the linker left out.
        .text
        .globl  pads_below
        .type   pads_below, @function
low_pad:
        .cfi_startproc
        nop
        ud2
        .cfi_endproc
pads_below:
        .cfi_startproc
        .cfi_personality 0x9b, DW.ref.personality
        .cfi_lsda 0x1b, lsda
        push    %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
1:      call    helper
2:      call    helper
3:      nop
        .cfi_escape 0x2e, 0x10          # DW_CFA_GNU_args_size 16
4:      call    helper
5:      .cfi_escape 0x2e, 0x00
        .cfi_remember_state
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret
        .cfi_restore_state
high_pad:
        nop
        jmp     5b
        .cfi_endproc

        .type   rules, @function
rules:  .cfi_startproc
        mov     %rbx, %rax
        .cfi_register %rbx, %rax
        mov     %rsp, %rbp
        .cfi_def_cfa_register %rbp
        .cfi_undefined %r12
        .cfi_same_value %r13
        .cfi_val_offset %r14, -16
        .fill   300, 1, 0x90
        .cfi_escape 0x10, 15, 2, 0x77, 8        # r15 saved at rsp + 8
        .cfi_escape 0x16, 3, 2, 0x77, 0x10      # rbx is rsp + 16
        .cfi_offset %r12, 24
        .fill   70000, 1, 0x90
        .cfi_escape 0x0f, 3, 0x76, 0x10, 0x06   # CFA = [rbp + 16]
        nop
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc

        .type   helper, @function
helper: .cfi_startproc
        .cfi_personality 0x9b, DW.ref.personality
        .cfi_lsda 0xff
        ret
        .cfi_endproc

# As glibc writes it: the interrupted instruction may be the first, and unwinders look one byte before it.
        .cfi_startproc
        .cfi_signal_frame
        .cfi_escape 0x0f, 4, 0x77, 0xa0, 0x01, 0x06     # CFA = [rsp + 160]
        .cfi_escape 0x10, 16, 3, 0x77, 0xa8, 0x01       # rip saved at rsp + 168
        nop
restore:
        mov     $15, %rax
        syscall
        .cfi_endproc

        .section .eh_frame, "a", @unwind
# Absolute eight-byte pointers to code.
first_cie_record:
        .long   first_cie_end - first_cie
first_cie:
        .long   0
        .byte   1
        .asciz  "zR"
        .uleb128 1
        .sleb128 -8
        .byte   16
        .uleb128 1
        .byte   0
        .byte   0x0c, 7, 8, 0x90, 1
        .balign 8
first_cie_end:
# A frame whose code is not there: start 0.
        .long   left_out_end - left_out
left_out:
        .long   left_out - first_cie_record
        .quad   0
        .quad   16
        .byte   0
        .balign 8
left_out_end:

        .section .gcc_except_table, "a", @progbits
lsda:   .byte   0x1b                    # landing pads count from here
        .long   low_pad - 1 - .
        .byte   0xff                    # no types
        .byte   0x03
        .uleb128 sites_end - sites
sites:  .long   1b - pads_below, 2b - 1b, low_pad - (low_pad - 1)
        .uleb128 1
        .long   2b - pads_below, 0, high_pad - (low_pad - 1)
        .uleb128 0
        .long   2b - pads_below, 3b - 2b, 0
        .uleb128 0
        .long   4b - pads_below, 5b - 4b, high_pad - (low_pad - 1)
        .uleb128 0
sites_end:
        .sleb128 0                      # cleanup
        .sleb128 0

        .data
        .balign 8
DW.ref.personality:
        .quad   personality
        .text
personality:
        ret
        .section .note.GNU-stack, "", @progbits
