//! SIGTRAP that somebody has sent, where asynchronous handlers must not run anywhere.
//!
//! Purpose: trap bytes raise SIGTRAP, so it can neither be blocked nor queued as other signals are that are put off ([`signals`]). One that a timer or a process
//! has sent to the program waits here until the next safe point, and while the program's handler for one runs, as if that blocked it. Input: the signal. Output: the
//! signal again, later.
//! **Invariants**: one waits, the first, as in the kernel; none is lost when it has been sent. The handler is over when it returns, through the gate, or
//! when the stack is above its frame (`siglongjmp`).
//! Source: `signal(7)` (standard signals do not queue).

use super::signals::{self, AT_SAFE_POINT, PUT_OFF, bit};
use super::stubs::Stub;
use crate::node::own_stack;
use crate::sys;
use crate::trap::{REG_RIP, Ucontext};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// So far below its frame at most a handler works.
const STACK_BYTES: u64 = 8 << 20;

/// The one that waits.
struct Sent(UnsafeCell<MaybeUninit<libc::siginfo_t>>);

// SAFETY: written when `WAITING` is clear, read when it is set, by one thread.
unsafe impl Sync for Sent {}

static SENT: Sent = Sent(UnsafeCell::new(MaybeUninit::uninit()));
static WAITING: AtomicBool = AtomicBool::new(false);
/// Where the context stands that the program's handler has interrupted; 0: none runs.
static HANDLER: AtomicU64 = AtomicU64::new(0);

/// Whether one waits.
pub fn is_waiting() -> bool {
    WAITING.load(Ordering::Relaxed)
}

/// Whether the program's handler runs, of which what the caller has on its stack tells.
fn is_handled(stack: u64) -> bool {
    let frame = HANDLER.load(Ordering::Relaxed);
    if own_stack::contains(stack) {
        // The node has been called from somewhere.
        return frame != 0;
    }
    let inside = stack < frame && frame - stack < STACK_BYTES;
    if frame != 0 && !inside {
        HANDLER.store(0, Ordering::Relaxed);
    }
    inside
}

/// Whether a SIGTRAP that was sent and interrupted `context` waits; if not, its handler, if the program has one, begins.
pub fn put_off(info: &libc::siginfo_t, context: &Ucontext) -> bool {
    if !signals::are_put_off() {
        return false;
    }
    let at = context.gregs[REG_RIP];
    // In front of `rt_sigreturn` what its context relies on has been made accessible.
    let relies = signals::relies_on_tags(at) || at == Stub::Sigreturn.address();
    let safe = AT_SAFE_POINT.swap(false, Ordering::Relaxed) || !relies;
    let handled = is_handled(&raw const *context as u64);
    if safe && !handled {
        return false;
    }
    if !WAITING.swap(true, Ordering::Relaxed) {
        // SAFETY: see `Sent`.
        unsafe { (*SENT.0.get()).write(*info) };
    }
    if !handled {
        // No call is to wait before it has been let in.
        PUT_OFF.fetch_or(bit(libc::SIGTRAP), Ordering::Relaxed);
        signals::ring();
    }
    true
}

/// The program's handler begins on `context`.
pub fn begins(context: &Ucontext) {
    if signals::are_put_off() {
        HANDLER.store(&raw const *context as u64, Ordering::Relaxed);
    }
}

/// A handler of the program returns to `context`.
pub fn returns(context: &Ucontext) {
    let frame = &raw const *context as u64;
    if HANDLER.compare_exchange(frame, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() && is_waiting() {
        PUT_OFF.fetch_or(bit(libc::SIGTRAP), Ordering::Relaxed);
        signals::ring();
    }
}

/// Lets the one in that waits, at a safe point.
pub fn let_in() {
    if let Some(info) = take() {
        signals::letting_in(|| signals::queue(libc::SIGTRAP, &info));
    }
}

/// The same when the signal handler that calls returns.
pub fn let_in_on_return() {
    if let Some(info) = take() {
        sys::set_signal_mask(sys::signal_mask() | bit(libc::SIGTRAP));
        signals::queue(libc::SIGTRAP, &info);
    }
}

/// The one that waits, unless the handler runs.
fn take() -> Option<libc::siginfo_t> {
    let here = 0u8;
    if !is_waiting() || is_handled(&raw const here as u64) {
        return None;
    }
    // SAFETY: see `Sent`.
    let info = unsafe { (*SENT.0.get()).assume_init_read() };
    WAITING.store(false, Ordering::Relaxed);
    Some(info)
}
