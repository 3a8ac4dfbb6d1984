//! From full code back to plain code.
//!
//! Purpose: a fault takes a function into full code, where it stays until it returns. `main` never does. What it does with private memory there is slow, and
//! what else touches shared memory is not learnt. So the launcher rings after some milliseconds, and plain code is tried again from the next access on that
//! begins in full code. Input: the frame of a poll; single steps behind it. Output: a context that goes on in plain code.
//!
//! **Invariants**
//! * Both versions have the same registers, flags and stack where an instruction begins. A step that stands there is in front of the access's test, so nothing
//!   relies on a tag, and goes on in front of the test of plain code, or of the access if that has none.
//! * Only the thread that computes is moved. It is stepped through full code and its stubs; a step that leads elsewhere is the last.
//!
//! Limits: a loop that calls, or enters the runtime, before it comes to an access stays in full code until it is rung for again. Source: design section 9; SDM
//! volume 3, 18.3.1.4 (single steps); Linux `arch/x86/kernel/traps.c` (`exc_debug_user`).

use crate::kernel::owned::per_thread;
use crate::kernel::sys;
use crate::kernel::ucontext::{REG_EFL, REG_RIP, Ucontext};
use crate::libraries::modules::MODULES;
use crate::process::frame::Frame;
use crate::process::tags;
use crate::system_calls::execution::situation;
use blizzard_contract::{FULL_CODE_WORD, full_code};
use core::sync::atomic::{AtomicU32, Ordering};

/// RFLAGS.TF: each instruction raises SIGTRAP when it is over.
const TRAP_FLAG: u64 = 1 << 8;
/// `si_code` of that; and where a hypervisor does not say that it was a step (DR6.BS is clear). That of a breakpoint is SI_KERNEL or TRAP_HWBKPT.
const OF_STEPS: [i32; 2] = [TRAP_TRACE, TRAP_BRKPT];
const TRAP_TRACE: i32 = 2;
const TRAP_BRKPT: i32 = 1;
/// Instructions that are stepped through at most.
const STEPS: u32 = 96;
/// So many steps may come behind the last one: of flags that were saved before it.
const LATE: u32 = 4;

per_thread! {
    /// Steps that are still taken.
    static LEFT: AtomicU32 = AtomicU32::new(0);
    /// Steps that may come late.
    static STRAY: AtomicU32 = AtomicU32::new(0);
}

fn word() -> &'static AtomicU32 {
    // SAFETY: the context page is mapped for the process's life.
    unsafe { AtomicU32::from_ptr(FULL_CODE_WORD as *mut u32) }
}

fn computes() -> bool {
    !tags::detached() && !situation::is_in_vfork_child() && sys::gettid() == sys::getpid()
}

/// A fault has taken this thread into full code.
pub fn entered() {
    if computes() {
        word().store(full_code::ENTERED, Ordering::Relaxed);
    }
}

/// At the end of a poll: where the launcher has rung for it, what follows is stepped through.
pub fn poll(frame: &mut Frame) {
    if word().load(Ordering::Relaxed) == full_code::LEAVE && computes() {
        // Until a step has led to plain code.
        word().store(full_code::ENTERED, Ordering::Relaxed);
        LEFT.store(STEPS, Ordering::Relaxed);
        frame.rflags |= TRAP_FLAG;
    }
}

/// A SIGTRAP with this code: whether it is of a step, which has been dealt with.
pub fn step(code: i32, context: &mut Ucontext) -> bool {
    if !OF_STEPS.contains(&code) {
        return false;
    }
    let (left, stray) = (LEFT.load(Ordering::Relaxed), STRAY.load(Ordering::Relaxed));
    if left == 0 && stray == 0 {
        return false;
    }
    let at = context.gregs[REG_RIP];
    let plain = MODULES.plain_from(at).filter(|_| left > 0);
    let goes_on = plain.is_none() && left > 1 && MODULES.in_tested_code(at);
    match (plain, left) {
        (Some(plain), _) => {
            context.gregs[REG_RIP] = plain;
            word().store(full_code::NOT, Ordering::Relaxed);
        }
        (None, 0) => STRAY.store(stray - 1, Ordering::Relaxed),
        (None, _) => {}
    }
    if goes_on {
        LEFT.store(left - 1, Ordering::Relaxed);
        STRAY.store(LATE, Ordering::Relaxed);
    } else {
        LEFT.store(0, Ordering::Relaxed);
        context.gregs[REG_EFL] &= !TRAP_FLAG;
    }
    true
}
