//! Signals that instructions raise, where somebody has sent them and asynchronous handlers must not run anywhere.
//!
//! Purpose: the kernel must not block them, or the instruction that raises one next ends the node. Trap bytes raise SIGTRAP, untested accesses to guarded memory
//! SIGSEGV: neither is ever blocked. So none is queued as other signals are that are put off (`put_off`). What a timer or a process has sent to the
//! program waits here until the next safe point; the two wait as long as the program has them blocked: by its mask, or because a handler runs whose action
//! says so. Input: the signal; the masks of the program and of the contexts that its handlers return to. Output: the signal again, later.
//! **Invariants**
//! * One of each waits, the first, as in the kernel; none is lost when it has been sent.
//! * The bits of [`NEVER`] in the program's mask are in [`BLOCKED`], in the context of a handler [`KEPT`] has them; the kernel sees neither. In processes and threads
//!   that put nothing off, the kernel has the bit of SIGSEGV.
//! * Limits: what waits is not seen by `sigpending`, `sigwait` or `signalfd`, and the mask of `sigsuspend` or `ppoll` does not change these bits. With one node
//!   one that is blocked interrupts a call all the same.
//!
//! Source: `signal(7)` (standard signals do not queue; masks during handlers); Linux `kernel/signal.c` (`force_sig_info_to_task`).

use crate::kernel::owned::per_thread;
use crate::kernel::sys::{self, KernelSigaction};
use crate::kernel::ucontext::{REG_RIP, Ucontext};
use crate::system_calls::execution::interruptions;
use crate::system_calls::execution::put_off::{self, AT_SAFE_POINT, PUT_OFF};
use crate::system_calls::execution::runtime_text::relies_on_tags;
use crate::system_calls::execution::signal_sets::{GUARD, HELD, bit, has_guard};
use crate::system_calls::execution::situation;
use crate::system_calls::execution::stubs::Stub;
use crate::system_calls::signals::actions::{ACTIONS, is_function};
use crate::system_calls::signals::own_sigtrap;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

/// Those that the kernel never blocks where they are kept here.
const NEVER: u64 = bit(libc::SIGTRAP) | GUARD;
/// Where the flags of a context, of which the kernel looks at the lowest, have the bits of [`NEVER`]: the program it is of has those blocked.
const KEPT: u32 = 48;

/// Signals up to this one have a place.
const PLACES: usize = libc::SIGSEGV as usize + 1;

per_thread! {
    /// What waits, by number: written when its bit of [`WAITING`] is clear, read when it is set.
    static SENT: UnsafeCell<[MaybeUninit<libc::siginfo_t>; PLACES]> = UnsafeCell::new([const { MaybeUninit::uninit() }; PLACES]);
    static WAITING: AtomicU64 = AtomicU64::new(0);
    /// Those of [`NEVER`] that the program has blocked.
    static BLOCKED: AtomicU64 = AtomicU64::new(0);
}

/// Whether any waits.
pub fn is_waiting() -> bool {
    WAITING.load(Ordering::Relaxed) != 0
}

/// Whether this thread's waits here when somebody has sent it.
pub fn holds(signal: i32) -> bool {
    HELD & bit(signal) != 0 && waits_here()
}

/// Whether the program has the signal blocked, and the kernel has not.
pub fn is_blocked(signal: i32) -> bool {
    waits_here() && blocked() & bit(signal) != 0
}

/// Those of [`NEVER`] in the program's mask.
fn blocked() -> u64 {
    BLOCKED.load(Ordering::Relaxed)
}

/// Whether they wait at all for the one that calls.
fn waits_here() -> bool {
    situation::are_signals_put_off() && !situation::is_in_vfork_child()
}

/// In a child, which has no pending signals. If it puts nothing off, its mask is the kernel's.
pub fn forget() {
    WAITING.store(0, Ordering::Relaxed);
    if has_guard(blocked()) && !waits_here() {
        sys::block_signals(GUARD);
    }
}

/// The calling thread, whose mask this is, puts signals off from here on: what is blocked and must not be is kept here, and left to the kernel no more.
pub fn begin(mask: &mut u64) {
    if has_guard(*mask) {
        take_bits(mask);
    }
}

/// Takes the bits out of the mask that the program continues with.
fn take_bits(mask: &mut u64) {
    BLOCKED.store(*mask & NEVER, Ordering::Relaxed);
    *mask &= !NEVER;
}

/// Whether a signal that was sent and interrupted `context` waits; if not, its handler, if the program has one, begins.
pub fn put_off(signal: i32, info: &libc::siginfo_t, context: &mut Ucontext) -> bool {
    if !holds(signal) {
        return false;
    }
    let at = context.gregs[REG_RIP];
    // In front of `rt_sigreturn` what its context relies on has been made accessible.
    let relies = relies_on_tags(at) || at == Stub::Sigreturn.address();
    let safe = AT_SAFE_POINT.swap(false, Ordering::Relaxed) || !relies;
    let blocked = is_blocked(signal);
    if safe && !blocked {
        return false;
    }
    if WAITING.fetch_or(bit(signal), Ordering::Relaxed) & bit(signal) == 0 {
        // SAFETY: see `SENT`; the numbers of what is held are less than `PLACES`.
        unsafe { (*SENT.get())[signal as usize].write(*info) };
    }
    if blocked {
        interruptions::goes_on(context);
    } else {
        // No call is to wait before it has been let in.
        PUT_OFF.fetch_or(bit(signal), Ordering::Relaxed);
        put_off::ring();
        put_off::come_back(false);
    }
    true
}

/// The program's handler for `signal` with this action begins on `context`, which has the program's mask; true if it must return through the gate: it may
/// change the bits, which matters to programs that handle these signals.
pub fn begins(signal: i32, action: &KernelSigaction, context: &mut Ucontext) -> bool {
    let own = if action.flags & libc::SA_NODEFER as u64 == 0 { bit(signal) } else { 0 };
    let blocks = (own | action.mask) & NEVER;
    if !waits_here() {
        if has_guard(blocks) && !situation::is_in_vfork_child() {
            sys::block_signals(GUARD);
        }
        return false;
    }
    context.flags = context.flags & !(NEVER << KEPT) | blocked() << KEPT;
    let blocked = BLOCKED.fetch_or(blocks, Ordering::Relaxed) | blocks;
    let handles_faults = cfg!(feature = "guard") && is_function(&ACTIONS.get(libc::SIGSEGV as u64));
    blocked != 0 || is_function(&own_sigtrap::own_action()) || handles_faults
}

/// A handler of the program returns to `context`, through the gate.
pub fn returns(context: &mut Ucontext) {
    context.sigmask |= context.flags >> KEPT & NEVER;
    take_bits(&mut context.sigmask);
}

/// The same in a process or thread that puts nothing off.
pub fn returns_alone(context: &mut Ucontext) {
    context.sigmask |= context.flags >> KEPT & GUARD;
}

/// Lets a call work on the program's mask, these bits included.
pub fn with_mask<R>(mask: &mut u64, call: impl FnOnce(&mut u64) -> R) -> R {
    *mask |= blocked();
    let result = call(mask);
    take_bits(mask);
    result
}

/// Lets those in that wait, at a safe point.
pub fn let_in() {
    while let Some((signal, info)) = take() {
        put_off::letting_in(|| put_off::queue(signal, &info));
    }
}

/// The same when the calling thread's mask is next replaced: until then the kernel blocks them. Their bits.
pub fn let_in_on_return() -> u64 {
    let mut let_in = 0;
    while let Some((signal, info)) = take() {
        let_in |= bit(signal);
        sys::block_signals(bit(signal));
        put_off::queue(signal, &info);
    }
    let_in
}

/// One that waits, unless the program has blocked it.
fn take() -> Option<(i32, libc::siginfo_t)> {
    let waits = WAITING.load(Ordering::Relaxed) & !blocked();
    if waits == 0 {
        return None;
    }
    let signal = waits.trailing_zeros() as i32 + 1;
    // SAFETY: see `SENT`.
    let info = unsafe { (*SENT.get())[signal as usize].assume_init_read() };
    WAITING.fetch_and(!bit(signal), Ordering::Relaxed);
    Some((signal, info))
}
