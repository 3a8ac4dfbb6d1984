//! The context of a signal, as the kernel builds it, and the return from a handler.
//!
//! Source: Linux `arch/x86/include/uapi/asm/sigcontext.h`, `arch/x86/kernel/signal_64.c`.

use crate::kernel::sys::{self, KernelSigaction};
use core::arch::naked_asm;

/// Index of a register in [`Ucontext::gregs`].
pub const REG_RDI: usize = 8;
pub const REG_RSI: usize = 9;
pub const REG_RDX: usize = 12;
pub const REG_RAX: usize = 13;
pub const REG_RCX: usize = 14;
pub const REG_RSP: usize = 15;
pub const REG_RIP: usize = 16;
pub const REG_EFL: usize = 17;
/// r8 to r11 are the first words.
pub const REG_R8: usize = 0;
pub const REG_R9: usize = 1;
pub const REG_R10: usize = 2;
pub const REG_R11: usize = 3;

/// The kernel's `struct ucontext` as far as the runtime uses it.
#[repr(C)]
#[derive(Debug)]
pub struct Ucontext {
    pub flags: u64,
    pub link: u64,
    pub stack: [u64; 3],
    /// r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags, segments, err, trapno, oldmask, cr2.
    pub gregs: [u64; 23],
    pub fpstate: u64,
    pub reserved: [u64; 8],
    pub sigmask: u64,
}

/// Places in [`Ucontext::gregs`] by register number in encoding order.
pub const GREGS: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];

/// Where the runtime's signal handlers return to.
pub fn restorer() -> u64 {
    restorer_code as *const () as u64 + 1
}

/// What [`restorer`] leads to, behind one byte.
///
/// # Safety
/// Entered by `ret` from a handler only, with rsp at the signal frame.
#[unsafe(naked)]
unsafe extern "C" fn restorer_code() {
    naked_asm!(
        // Unwinders look one byte in front of a return address. There must be no frame, or they do not look at the code.
        "nop",
        // mov rax, 15 (rt_sigreturn); syscall. In the very bytes of the C library's restorer, by which unwinders know a signal frame.
        ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05",
        "ud2",
    )
}

/// What a signal does without a handler, as soon as the calling handler returns.
pub fn default_action(signal: i32) {
    let default = KernelSigaction { flags: sys::SA_RESTORER, ..KernelSigaction::default() };
    // SAFETY: the default action runs no code.
    let _ = unsafe { sys::rt_sigaction(signal, &default) };
    let _ = sys::tgkill(sys::getpid(), sys::gettid(), signal);
}

const _: () = {
    assert!(GREGS[4] == REG_RSP);
    assert!(core::mem::offset_of!(Ucontext, gregs) == 40);
    assert!(core::mem::offset_of!(Ucontext, sigmask) == 296);
};
