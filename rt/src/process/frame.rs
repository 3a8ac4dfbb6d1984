//! What a gate saves of the program's registers when it is entered.
//!
//! Purpose: the save and restore sequences of all gates, and the [`Frame`] that they leave. Input and output: registers.
//! Unwinders are led through by the registers that are saved. Source: psABI 3.2.2 (alignment of the stack), DWARF 5 sections 2.5 and 6.4.2.

/// What the save sequence leaves on the stack, lowest address first.
#[repr(C)]
#[derive(Debug)]
pub struct Frame {
    /// For unwinders, once [`Frame::lead_to`] has been called: what they take for the return address.
    leads_to: u64,
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8..r15: encoding order. The rsp slot is not restored. Unwinders find the caller's rsp by it.
    pub gpr: [u64; 16],
    pub rflags: u64,
    pub return_address: u64,
    /// Stack arguments, the one pushed last first.
    pub args: [u64; 2],
}

/// Index of the rsp slot.
const RSP: usize = 4;
/// How far behind the address in the rsp slot the caller's stack begins. The save sequence has put the address of the next slot there.
const CALLER_BEHIND: u64 = 104;

impl Frame {
    /// Where the caller's stack begins: the gate's arguments.
    pub fn callers_stack(&self) -> u64 {
        (&raw const self.args) as u64
    }

    /// Leads unwinders to the instruction at `at`, with the stack at `rsp`, past what called the gate.
    pub fn lead_to(&mut self, at: u64, rsp: u64) {
        // They take it for a return address, and look one byte in front.
        self.leads_to = at + 1;
        self.gpr[RSP] = rsp.wrapping_sub(CALLER_BEHIND);
    }
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

/// Saves flags and general registers as a [`Frame`] (rbp is 8 behind its address) and xmm0-15 below it (rbx = rsp = their address).
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
            "push rsp\n", // into the rsp slot: the address of the next one
            "push rbx\n",
            "push rdx\n",
            "push rcx\n",
            "push rax\n",
            "mov rbp, rsp\n", // rbp = the registers of the Frame; call-saved, so it survives the Rust half
            // For unwinders, from here to `restore!`. The caller's stack begins 104 bytes behind the address in the rsp slot (breg6 32, deref, plus_uconst 104).
            ".cfi_remember_state\n",
            ".cfi_escape 0x0f, 5, 0x76, 32, 0x06, 0x23, 104\n",
            // The return address stands at rbp + 136 while that slot holds rbp + 40, else at rbp - 8:
            // breg6 32, deref, breg6 40, eq, const2u 144, mul, breg6 -8, plus.
            ".cfi_escape 0x10, 16, 13, 0x76, 32, 0x06, 0x76, 40, 0x29, 0x0a, 144, 0, 0x1e, 0x76, 0x78, 0x22\n",
            // The caller's rbx, rbp, r12 to r15 stand at rbp + 24, 40, 96 to 120: breg6 with that number.
            ".cfi_escape 0x10, 3, 2, 0x76, 24\n",
            ".cfi_escape 0x10, 6, 2, 0x76, 40\n",
            ".cfi_escape 0x10, 12, 3, 0x76, 0xe0, 0\n",
            ".cfi_escape 0x10, 13, 3, 0x76, 0xe8, 0\n",
            ".cfi_escape 0x10, 14, 3, 0x76, 0xf0, 0\n",
            ".cfi_escape 0x10, 15, 3, 0x76, 0xf8, 0\n",
            "sub rsp, 264\n", // the Frame's first word, and the xmm area
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
            "mov rsp, rbp\n", // back to the registers of the Frame
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
    assert!(core::mem::offset_of!(Frame, gpr) == 8);
    assert!(core::mem::offset_of!(Frame, rflags) == 136);
    assert!(core::mem::offset_of!(Frame, args) == 152);
};
