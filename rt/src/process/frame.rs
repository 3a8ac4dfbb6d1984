//! What a gate saves of the program's registers when it is entered.
//!
//! Purpose: the save and restore sequences of all gates, and the [`Frame`] that they leave. Input and output: registers.
//! Source: psABI 3.2.2 (alignment of the stack).

/// What the save sequence leaves on the stack, lowest address first.
#[repr(C)]
#[derive(Debug)]
pub struct Frame {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8..r15: encoding order. The rsp slot is not restored and holds no useful value.
    pub gpr: [u64; 16],
    pub rflags: u64,
    pub return_address: u64,
    /// Stack arguments, the one pushed last first.
    pub args: [u64; 2],
}

/// Bytes by which a stub lowers rsp before it calls a gate.
pub const RED_ZONE: u64 = 128;

/// Index of a general register in [`Frame::gpr`].
pub const RAX: usize = 0;
pub const RCX: usize = 1;
pub const RDX: usize = 2;
pub const RSI: usize = 6;
pub const RDI: usize = 7;
pub const R8: usize = 8;
pub const R9: usize = 9;
pub const R10: usize = 10;
pub const R11: usize = 11;

/// Saves flags and general registers as a [`Frame`] (its address in rbp) and xmm0-15 below it (rbx = rsp = their address).
/// Uses about 400 bytes of stack.
macro_rules! save {
    () => {
        concat!(
            "pushfq\n", // status flags and DF, before anything changes them
            "cld\n",    // Rust code relies on DF = 0
            "push r15\n",
            "push r14\n",
            "push r13\n",
            "push r12\n",
            "push r11\n",
            "push r10\n",
            "push r9\n",
            "push r8\n",
            "push rdi\n",
            "push rsi\n",
            "push rbp\n",
            "push rsp\n", // placeholder of the rsp slot
            "push rbx\n",
            "push rdx\n",
            "push rcx\n",
            "push rax\n",
            "mov rbp, rsp\n", // rbp = the Frame; call-saved, so it survives the Rust half
            // For debuggers, from here to `restore!`: the caller's stack is above the return address, and where its registers are.
            ".cfi_remember_state\n",
            ".cfi_def_cfa rbp, 144\n",
            ".cfi_offset rip, -8\n",
            ".cfi_offset rbx, -120\n",
            ".cfi_offset rbp, -104\n",
            ".cfi_offset r12, -48\n",
            ".cfi_offset r13, -40\n",
            ".cfi_offset r14, -32\n",
            ".cfi_offset r15, -24\n",
            "sub rsp, 256\n",
            "and rsp, -16\n",       // movaps and the psABI want 16-byte alignment
            "movaps [rsp], xmm0\n", // legacy encodings: no VEX, upper halves untouched
            "movaps [rsp + 16], xmm1\n",
            "movaps [rsp + 32], xmm2\n",
            "movaps [rsp + 48], xmm3\n",
            "movaps [rsp + 64], xmm4\n",
            "movaps [rsp + 80], xmm5\n",
            "movaps [rsp + 96], xmm6\n",
            "movaps [rsp + 112], xmm7\n",
            "movaps [rsp + 128], xmm8\n",
            "movaps [rsp + 144], xmm9\n",
            "movaps [rsp + 160], xmm10\n",
            "movaps [rsp + 176], xmm11\n",
            "movaps [rsp + 192], xmm12\n",
            "movaps [rsp + 208], xmm13\n",
            "movaps [rsp + 224], xmm14\n",
            "movaps [rsp + 240], xmm15\n",
            "mov rbx, rsp\n", // rbx = the xmm area; call-saved
        )
    };
}

/// Undoes [`save!`], taking register values from the Frame, which the Rust half may have changed.
macro_rules! restore {
    () => {
        concat!(
            "movaps xmm0, [rbx]\n",
            "movaps xmm1, [rbx + 16]\n",
            "movaps xmm2, [rbx + 32]\n",
            "movaps xmm3, [rbx + 48]\n",
            "movaps xmm4, [rbx + 64]\n",
            "movaps xmm5, [rbx + 80]\n",
            "movaps xmm6, [rbx + 96]\n",
            "movaps xmm7, [rbx + 112]\n",
            "movaps xmm8, [rbx + 128]\n",
            "movaps xmm9, [rbx + 144]\n",
            "movaps xmm10, [rbx + 160]\n",
            "movaps xmm11, [rbx + 176]\n",
            "movaps xmm12, [rbx + 192]\n",
            "movaps xmm13, [rbx + 208]\n",
            "movaps xmm14, [rbx + 224]\n",
            "movaps xmm15, [rbx + 240]\n",
            "mov rsp, rbp\n", // back to the Frame
            ".cfi_restore_state\n",
            "pop rax\n",
            "pop rcx\n",
            "pop rdx\n",
            "pop rbx\n",
            "lea rsp, [rsp + 8]\n", // the rsp slot
            "pop rbp\n",
            "pop rsi\n",
            "pop rdi\n",
            "pop r8\n",
            "pop r9\n",
            "pop r10\n",
            "pop r11\n",
            "pop r12\n",
            "pop r13\n",
            "pop r14\n",
            "pop r15\n",
            "popfq\n", // status flags and DF as they were (or as the string instruction left them)
        )
    };
}

pub(crate) use {restore, save};

const _: () = {
    // The layout that `save!` and `restore!` build.
    assert!(core::mem::offset_of!(Frame, rflags) == 128);
    assert!(core::mem::offset_of!(Frame, args) == 144);
};
