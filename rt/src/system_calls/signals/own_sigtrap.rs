//! The program's own action for SIGTRAP, and the runtime's in front of it.
//!
//! Purpose: the runtime's handler stays installed, and passes on what is not a trap byte. Input: actions that the program sets; the handler.
//! Output: the kernel's action.

use crate::kernel::owned::PerProcess;
use crate::kernel::sys::{self, KernelSigaction};
use crate::kernel::ucontext::restorer;
use crate::system_calls::execution::signal_sets::{BLOCK_ALL, bit};
use crate::system_calls::signals::actions;
use blizzard_contract::CALL_SIGNAL;
use core::sync::atomic::{AtomicU64, Ordering};

/// The runtime's handler.
static HANDLER: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));

/// Installs the runtime's handler, which is at that address.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Called before the program runs.
pub unsafe fn install(handler: u64) -> sys::Result<()> {
    HANDLER.store(handler, Ordering::Relaxed);
    // SAFETY: passed on from the caller.
    unsafe { set() }
}

/// # Safety
/// As [`install`], which has been called.
unsafe fn set() -> sys::Result<()> {
    // SAFETY: the handler is async-signal-safe: it reads the table of modules and edits its frame.
    unsafe { sys::rt_sigaction(libc::SIGTRAP, &action()) }.map(drop)
}

/// The action that [`set`] sets.
fn action() -> KernelSigaction {
    KernelSigaction {
        handler: HANDLER.load(Ordering::Relaxed),
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | sys::SA_RESTORER | restarts(),
        restorer: restorer(),
        // What goes on elsewhere is not interrupted on the way. Nor by the next one: a fast timer's would fill the stack that handlers begin on.
        mask: BLOCK_ALL | bit(CALL_SIGNAL),
    }
}

/// The program's own action for SIGTRAP: its handler, flags, restorer and mask. The runtime's handler stays installed and passes on what
/// is not a trap byte.
static OWN: PerProcess<[AtomicU64; 4]> = PerProcess::new([const { AtomicU64::new(0) }; 4]);

/// The action for SIGTRAP as the program set it.
pub fn own_action() -> KernelSigaction {
    let [handler, flags, restorer, mask] = [0, 1, 2, 3].map(|i: usize| OWN[i].load(Ordering::Relaxed));
    KernelSigaction { handler, flags, restorer, mask }
}

/// SA_RESTART, unless the program has a handler without it: what the program ignores must not interrupt its calls.
fn restarts() -> u64 {
    let own = own_action();
    let interrupts = actions::is_function(&own) && own.flags & libc::SA_RESTART as u64 == 0;
    if interrupts { 0 } else { libc::SA_RESTART as u64 }
}

/// Notes the action for SIGTRAP that the program sets.
pub fn set_own_action(action: &KernelSigaction) {
    let before = restarts();
    for (word, value) in OWN.iter().zip([action.handler, action.flags, action.restorer, action.mask]) {
        word.store(value, Ordering::Relaxed);
    }
    if restarts() != before {
        // SAFETY: the same handler.
        let _ = unsafe { set() };
    }
}
