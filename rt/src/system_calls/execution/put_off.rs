//! Signals that are put off to the next safe point: a poll or a system call.
//!
//! Input: a signal that arrived where the program must not be interrupted. Output: the signal again, queued with its information and blocked in the
//! context that it has interrupted, so it is neither lost nor doubled.
//! **Invariants**
//! * One thread puts signals off (the only one, or the one that uses `tempest.h`), so the statics need no lock; signal masks order their use.
//! * [`PUT_OFF`] names what waits elsewhere ([`HELD`]), and what is blocked in the context that runs and not by the program's wish; what a handler interrupts blocks none of it any more when it goes
//!   on, since nobody would let it in there.

use crate::kernel::later;
use crate::kernel::owned::{PerThread, per_thread};
use crate::kernel::sys;
use crate::kernel::ucontext::Ucontext;
use crate::kernel::unaliased::Unaliased;
use crate::node::nudge;
use crate::process::process;
use crate::system_calls::execution::signal_sets::{HELD, bit};
use blizzard_contract::{self as contract, CALL_SIGNAL};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Put-off signals: queued again and blocked until the next safe point.
pub static PUT_OFF: PerThread<Unaliased<AtomicU64>> = PerThread::new(Unaliased::new(AtomicU64::new(0)));
per_thread! {
    /// Signals are being let in at a safe point.
    pub static AT_SAFE_POINT: AtomicBool = AtomicBool::new(false);
    /// After how long what is put off is looked at again, if nobody has let it in.
    static AGAIN_NS: AtomicU64 = AtomicU64::new(0);
}

/// Takes the put-off signals: the caller lets those in that are blocked, which this returns.
pub fn take_put_off() -> u64 {
    AGAIN_NS.store(0, Ordering::Relaxed);
    PUT_OFF.swap(0, Ordering::Relaxed) & !HELD
}

/// Runs what lets signals in: their handlers find a safe point.
pub fn letting_in(call: impl FnOnce()) {
    AT_SAFE_POINT.store(true, Ordering::Relaxed);
    call();
    AT_SAFE_POINT.store(false, Ordering::Relaxed);
}

/// Rings this node's own doorbell again when a signal of the program waits: a miss in between may have answered the first ring. (What peers called for is done then.)
pub fn keep_ringing() {
    if has_of_program() {
        ring();
    }
}

/// Whether any signal waits.
pub fn is_waiting() -> bool {
    PUT_OFF.load(Ordering::Relaxed) != 0
}

/// Whether a signal of the program waits.
pub fn has_of_program() -> bool {
    PUT_OFF.load(Ordering::Relaxed) & !bit(CALL_SIGNAL) != 0
}

/// A peer has called at a moment when nothing can be served: the next poll or system call does it.
pub fn call_put_off() {
    PUT_OFF.fetch_or(bit(CALL_SIGNAL), Ordering::Relaxed);
    ring();
}

/// What is put off is let in by the next poll. Plain code may come first, which has none: then a signal does it, less and less often while that is too early.
/// `soon`: nothing but a test of plain code has been in the way, which is a few instructions.
pub fn come_back(soon: bool) {
    /// Longer than most functions take to come to a poll or to their end.
    const FIRST_NS: u64 = 50_000;
    const LAST_NS: u64 = 1_000_000;
    if !cfg!(feature = "guard") {
        return;
    }
    if process::nodes() == 1 {
        // Not by a timer, which could interrupt a call of the program.
        nudge::want();
    } else {
        let ns = if soon { FIRST_NS } else { AGAIN_NS.load(Ordering::Relaxed).clamp(FIRST_NS, LAST_NS) };
        AGAIN_NS.store(2 * ns, Ordering::Relaxed);
        later::call_after(ns);
    }
}

/// Makes the next poll enter the runtime.
pub fn ring() {
    // SAFETY: the shared context page is mapped for the whole run.
    unsafe { AtomicU32::from_ptr(contract::POLL_WORD as *mut u32) }.store(1, Ordering::Relaxed);
}

/// Whether the next poll enters the runtime.
pub fn is_rung() -> bool {
    // SAFETY: as in [`ring`].
    unsafe { AtomicU32::from_ptr(contract::POLL_WORD as *mut u32) }.load(Ordering::Relaxed) != 0
}

/// Silences the doorbell: what rang it is none of this process's business.
pub fn silence_doorbell() {
    // SAFETY: the shared context page is mapped for the process's life.
    unsafe { AtomicU32::from_ptr(contract::POLL_WORD as *mut u32) }.store(0, Ordering::Relaxed);
}

/// Queues the signal again, blocked until the next safe point.
pub fn put_off(signal: i32, info: &libc::siginfo_t, context: &mut Ucontext) {
    // The signal is blocked while its handler runs, so this does not come back at once.
    queue(signal, info);
    context.sigmask |= bit(signal);
    PUT_OFF.fetch_or(bit(signal), Ordering::Relaxed);
    ring();
    come_back(false);
}

/// Sends this thread a signal with its information.
pub fn queue(signal: i32, info: &libc::siginfo_t) {
    let args = [sys::getpid() as u64, sys::gettid() as u64, signal as u64, info as *const _ as u64, 0, 0];
    // SAFETY: the kernel copies the information, which it has built itself.
    let queued = unsafe { sys::call(libc::SYS_rt_tgsigqueueinfo, args) };
    if queued.is_err() {
        // The queue is full (RLIMIT_SIGPENDING): without its information, but not lost.
        let _ = sys::tgkill(sys::getpid(), sys::gettid(), signal);
    }
}
