//! SIGTRAP that somebody has sent, where asynchronous handlers must not run anywhere.
//!
//! Purpose: trap bytes raise SIGTRAP, so the kernel's mask never blocks it, and it cannot be queued as other signals are that are put off (`put_off`). One that a
//! timer or a process has sent to the program waits here until the next safe point, and as long as the program has it blocked: by its mask, or because its
//! handler for one runs. Input: the signal; the masks of the program and of the contexts that its handlers return to. Output: the signal again, later.
//! **Invariants**
//! * One waits, the first, as in the kernel; none is lost when it has been sent.
//! * The bit of SIGTRAP in the program's mask is [`BLOCKED`], in the context of a handler [`KEPT`]; the kernel sees neither.
//! * Limits: what waits is not seen by `sigpending`, `sigwait` or `signalfd`, and the mask of `sigsuspend` or `ppoll` does not change the bit. With one node
//!   one that is blocked interrupts a call all the same.
//!
//! Source: `signal(7)` (standard signals do not queue; masks during handlers).

use crate::kernel::owned::per_thread;
use crate::kernel::sys::{self, KernelSigaction};
use crate::kernel::ucontext::{REG_RIP, Ucontext};
use crate::system_calls::execution::interruptions;
use crate::system_calls::execution::put_off::{self, AT_SAFE_POINT, PUT_OFF};
use crate::system_calls::execution::runtime_text::relies_on_tags;
use crate::system_calls::execution::signal_sets::bit;
use crate::system_calls::execution::situation;
use crate::system_calls::execution::stubs::Stub;
use crate::system_calls::signals::actions::is_function;
use crate::system_calls::signals::own_sigtrap;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

const BIT: u64 = bit(libc::SIGTRAP);
/// In the flags of a context, of which the kernel looks at the lowest: the program it is of has SIGTRAP blocked.
const KEPT: u64 = 1 << 63;

per_thread! {
    /// The one that waits: written when [`WAITING`] is clear, read when it is set.
    static SENT: UnsafeCell<MaybeUninit<libc::siginfo_t>> = UnsafeCell::new(MaybeUninit::uninit());
    static WAITING: AtomicBool = AtomicBool::new(false);
    /// The program has blocked it.
    static BLOCKED: AtomicBool = AtomicBool::new(false);
}

/// Whether one waits.
pub fn is_waiting() -> bool {
    WAITING.load(Ordering::Relaxed)
}

/// The bit in the program's mask.
fn blocked() -> u64 {
    if BLOCKED.load(Ordering::Relaxed) { BIT } else { 0 }
}

/// Whether it waits at all for the one that calls.
fn waits_here() -> bool {
    situation::are_signals_put_off() && !situation::is_in_vfork_child()
}

/// In a child, which has no pending signals.
pub fn forget() {
    WAITING.store(false, Ordering::Relaxed);
}

/// Takes the bit out of the mask that the program continues with.
fn take_bit(mask: &mut u64) {
    BLOCKED.store(*mask & BIT != 0, Ordering::Relaxed);
    *mask &= !BIT;
}

/// Whether a SIGTRAP that was sent and interrupted `context` waits; if not, its handler, if the program has one, begins.
pub fn put_off(info: &libc::siginfo_t, context: &mut Ucontext) -> bool {
    if !waits_here() {
        return false;
    }
    let at = context.gregs[REG_RIP];
    // In front of `rt_sigreturn` what its context relies on has been made accessible.
    let relies = relies_on_tags(at) || at == Stub::Sigreturn.address();
    let safe = AT_SAFE_POINT.swap(false, Ordering::Relaxed) || !relies;
    let blocked = BLOCKED.load(Ordering::Relaxed);
    if safe && !blocked {
        return false;
    }
    if !WAITING.swap(true, Ordering::Relaxed) {
        // SAFETY: see `SENT`.
        unsafe { (*SENT.get()).write(*info) };
    }
    if blocked {
        interruptions::goes_on(context);
    } else {
        // No call is to wait before it has been let in.
        PUT_OFF.fetch_or(BIT, Ordering::Relaxed);
        put_off::ring();
        put_off::come_back(false);
    }
    true
}

/// The program's handler for `signal` with this action begins on `context`, which has the program's mask; true if it must return through the gate: it may
/// change the bit, which matters to programs that handle the signal.
pub fn begins(signal: i32, action: &KernelSigaction, context: &mut Ucontext) -> bool {
    if !waits_here() {
        return false;
    }
    let own = signal == libc::SIGTRAP && action.flags & libc::SA_NODEFER as u64 == 0;
    context.flags = context.flags & !KEPT | if blocked() == 0 { 0 } else { KEPT };
    if own || action.mask & BIT != 0 {
        BLOCKED.store(true, Ordering::Relaxed);
    }
    blocked() != 0 || is_function(&own_sigtrap::own_action())
}

/// A handler of the program returns to `context`, through the gate.
pub fn returns(context: &mut Ucontext) {
    context.sigmask |= if context.flags & KEPT == 0 { 0 } else { BIT };
    take_bit(&mut context.sigmask);
}

/// Lets a call work on the program's mask, the bit included.
pub fn with_mask<R>(mask: &mut u64, call: impl FnOnce(&mut u64) -> R) -> R {
    *mask |= blocked();
    let result = call(mask);
    take_bit(mask);
    result
}

/// Lets the one in that waits, at a safe point.
pub fn let_in() {
    if let Some(info) = take() {
        put_off::letting_in(|| put_off::queue(libc::SIGTRAP, &info));
    }
}

/// The same when the calling thread's mask is next replaced: until then the kernel blocks it. True if there is one.
pub fn let_in_on_return() -> bool {
    let info = take();
    if let Some(info) = &info {
        sys::set_signal_mask(sys::signal_mask() | BIT);
        put_off::queue(libc::SIGTRAP, info);
    }
    info.is_some()
}

/// The one that waits, unless the program has blocked it.
fn take() -> Option<libc::siginfo_t> {
    if !is_waiting() || blocked() != 0 {
        return None;
    }
    // SAFETY: see `SENT`.
    let info = unsafe { (*SENT.get()).assume_init_read() };
    WAITING.store(false, Ordering::Relaxed);
    Some(info)
}
