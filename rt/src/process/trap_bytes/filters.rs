//! Filters of system calls.
//!
//! Purpose: a filter may end a process for a call that the program would never make. Input: what is known of filters: none, one that the process begins with, or
//! one that the program asks for. Output: whether calls may be made that only changing code needs.
//! **Invariant**: such a call is first made by a child that nobody waits for but this module, if there is a filter.
//! Source: seccomp(2), clone(2), membarrier(2).

use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use core::arch::asm;
use core::sync::atomic::{AtomicU8, Ordering};

/// What may be done.
static STATE: PerProcess<AtomicU8> = PerProcess::new(AtomicU8::new(ALLOWED));
const ALLOWED: u8 = 0;
/// The process begins with a filter: those of containers allow what is needed.
const UNKNOWN: u8 = 1;
const FORBIDDEN: u8 = 2;

/// The process begins with a filter.
pub fn begin_with_one() {
    STATE.store(UNKNOWN, Ordering::Relaxed);
}

/// The program asks for one.
pub fn close() {
    STATE.store(FORBIDDEN, Ordering::Relaxed);
}

/// Whether the program has asked for one: rights of code stay as they are.
pub fn is_asked_for() -> bool {
    STATE.load(Ordering::Relaxed) == FORBIDDEN
}

/// Whether `membarrier` may be called.
pub fn allow_membarrier() -> bool {
    if STATE.load(Ordering::Relaxed) == UNKNOWN {
        let found = if a_child_survives() { ALLOWED } else { FORBIDDEN };
        // Meanwhile the program may have asked for one.
        let _ = STATE.compare_exchange(UNKNOWN, found, Ordering::Relaxed, Ordering::Relaxed);
    }
    STATE.load(Ordering::Relaxed) == ALLOWED
}

/// Whether a child does that calls it.
fn a_child_survives() -> bool {
    let child: i64;
    // Without a signal at its end: waits of the program do not see it.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    // SAFETY: this thread goes on when the child has ended, which uses no memory and no stack.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov eax, {membarrier}", // MEMBARRIER_CMD_QUERY
            "xor edi, edi",
            "syscall",
            "mov eax, {exit}",
            "xor edi, edi",
            "syscall",
            "ud2",
            "2:",
            membarrier = const libc::SYS_membarrier,
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone => child,
            in("rdi") flags,
            in("rsi") 0, // the same stack
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    if child < 0 {
        return false;
    }
    let mut status = 0i32;
    loop {
        let args = [child as u64, (&raw mut status) as u64, libc::__WALL as u64, 0, 0, 0];
        // SAFETY: the status is this function's.
        match unsafe { sys::call(libc::SYS_wait4, args) } {
            Err(sys::Errno(libc::EINTR)) => continue,
            waited => return waited.is_ok() && status == 0,
        }
    }
}
