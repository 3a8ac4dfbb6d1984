//! In which situation a call or a signal finds the process: in a run of several nodes, on the thread that uses `tempest.h`, or in a child of `vfork`.
//!
//! Input: what the start, `tempest.h` and the gate tell. Output: answers, for each column of the table of calls.
//! **Invariant**: nothing is ever taken back but the loan of the memory to a child of `vfork`, which ends when the parent runs again.

use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use crate::process::process;
use crate::process::tags;
use crate::tempest::owner;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Calls of code that is not rewritten are dispatched, as in all runs of several nodes.
static DISPATCHED: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));

/// Notes that they are.
pub fn note_dispatch() {
    DISPATCHED.store(true, Ordering::Relaxed);
}

/// Whether they are.
pub fn is_dispatched() -> bool {
    DISPATCHED.load(Ordering::Relaxed)
}

/// The program has started `tempest.h` in a run of one node.
static TEMPEST_ALONE: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));
/// The process in which it did.
static TEMPEST_PROCESS: PerProcess<AtomicI32> = PerProcess::new(AtomicI32::new(0));

/// Notes that it is about to.
pub fn note_tempest_process() {
    TEMPEST_PROCESS.store(sys::getpid(), Ordering::Relaxed);
}

/// Whether this is that process, and not one made from it.
pub fn is_tempest_process() -> bool {
    sys::getpid() == TEMPEST_PROCESS.load(Ordering::Relaxed)
}

/// Notes that it has.
pub fn note_tempest_alone() {
    TEMPEST_ALONE.store(true, Ordering::Relaxed);
}

/// Whether the program has started `tempest.h` in a run of one node.
#[inline]
pub fn uses_tempest_alone() -> bool {
    TEMPEST_ALONE.load(Ordering::Relaxed)
}

/// Whether the caller is the thread that uses `tempest.h` in a run of one node.
pub fn is_tempest_thread() -> bool {
    uses_tempest_alone() && owner::is_own_thread()
}

/// Whether this thread's asynchronous signals wait for safe points.
pub fn are_signals_put_off() -> bool {
    if process::nodes() > 1 { !tags::detached() } else { is_tempest_thread() }
}

/// The node's process number while a `vfork` child may be using its memory, else 0.
static LENDER: PerProcess<AtomicI32> = PerProcess::new(AtomicI32::new(0));

/// Notes that the call which follows makes a child that shares this memory.
pub fn expect_vfork_child() {
    LENDER.store(sys::getpid(), Ordering::Relaxed);
}

/// The same, where the parent may be about to make the call.
pub fn is_in_vfork_child() -> bool {
    let lender = LENDER.load(Ordering::Relaxed);
    lender != 0 && lender != sys::getpid()
}

/// Whether this is the child. The parent runs again only when the child has executed another program or is gone.
pub fn is_vfork_child() -> bool {
    let lender = LENDER.load(Ordering::Relaxed);
    if lender == 0 {
        return false;
    }
    let child = lender != sys::getpid();
    if !child {
        LENDER.store(0, Ordering::Relaxed);
    }
    child
}
