//! Interrupts of the thread that uses `tempest.h`, in guarded code and a run of one node.
//!
//! Purpose: plain code has no polls, and with one node there is no peer that interrupts it. So the thread that watches the clock does, while a timer is due
//! or something was put off. Input: who wants it; when that thread is in a system call. Output: a [`CALL_SIGNAL`] to it, with information of its own, by which
//! it is told from signals of the program: C libraries use the number with threads.
//! **Invariants**
//! * The signal is never pending in a system call of the program that may wait, so none is given up for it. Who sends looks whether the thread is in one, and
//!   says before that it is about to ([`SENDS`] is odd). The thread says that it is in one, and then looks whether anybody has sent.
//! * One at most is on its way.
//!
//! Source: Linux `kernel/signal.c` (`complete_signal`, `rt_tgsigqueueinfo`).

use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use crate::node::alarm;
use blizzard_contract::CALL_SIGNAL;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// `si_code` of a queued signal, which has a value.
const SI_QUEUE: i32 = -1;
/// While the first interrupts come too early, so long after each other; then less and less often.
pub const FIRST_NS: u64 = 50_000;
pub const LAST_NS: u64 = 10_000_000;

/// The thread; 0: nobody is interrupted.
static THREAD: PerProcess<AtomicI32> = PerProcess::new(AtomicI32::new(0));
/// Something but a timer waits for an interrupt.
static WANTED: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));
/// One is on its way.
static PENDING: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));
/// Twice how often one was sent, or nearly; odd while one may be being sent.
static SENDS: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(0));
/// What the thread has last seen of [`SENDS`].
static SEEN: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(0));
/// Whether the thread is in a system call that may wait. The stubs make it 0 behind the call.
static IN_CALL: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(0));
/// Changes whenever the one who watches must look again; it sleeps on it.
pub static CHANGED: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(0));

/// From here on the calling thread is interrupted: it has a handler for the signal.
pub fn start() {
    THREAD.store(sys::gettid(), Ordering::SeqCst);
    wake_watcher();
}

/// Where the stubs write that a call is over.
pub fn in_call() -> *mut u32 {
    IN_CALL.as_ptr()
}

/// Lets the one who watches look again.
pub fn wake_watcher() {
    CHANGED.fetch_add(1, Ordering::SeqCst);
    let _ = sys::futex_wake(&CHANGED, 1);
}

/// The thread is to be interrupted until it says that it was.
pub fn want() {
    if !WANTED.swap(true, Ordering::SeqCst) {
        wake_watcher();
    }
}

/// Whether it is to be interrupted.
pub fn is_wanted() -> bool {
    THREAD.load(Ordering::SeqCst) != 0 && (alarm::is_due() || WANTED.load(Ordering::SeqCst))
}

/// Interrupts it, unless it is in a system call or has not had the last signal yet.
pub fn interrupt() {
    if PENDING.swap(true, Ordering::SeqCst) {
        return;
    }
    SENDS.fetch_add(1, Ordering::SeqCst);
    let has_sent = IN_CALL.load(Ordering::SeqCst) == 0 && send().is_ok();
    if !has_sent {
        PENDING.store(false, Ordering::SeqCst);
    }
    SENDS.fetch_add(1, Ordering::SeqCst);
}

/// The value of the signal: an address that nobody else has.
fn mark() -> u64 {
    PENDING.as_ptr() as u64
}

fn send() -> sys::Result<u64> {
    let pid = sys::getpid() as u32;
    let code = SI_QUEUE as u32;
    // `siginfo_t`: number and error, code, sender, value.
    let mut info = [0u64; 16];
    info[..4].copy_from_slice(&[CALL_SIGNAL as u64, code.into(), pid.into(), mark()]);
    let thread = THREAD.load(Ordering::SeqCst) as u64;
    let args = [pid.into(), thread, CALL_SIGNAL as u64, info.as_ptr() as u64, 0, 0];
    // SAFETY: the kernel copies the information.
    unsafe { sys::call(libc::SYS_rt_tgsigqueueinfo, args) }
}

/// Whether a signal is one of these.
pub fn is_ours(signal: i32, info: &libc::siginfo_t) -> bool {
    // SAFETY: a queued signal has a value.
    signal == CALL_SIGNAL && info.si_code == SI_QUEUE && unsafe { info.si_value().sival_ptr } as u64 == mark()
}

/// It has come.
pub fn has_come() {
    PENDING.store(false, Ordering::SeqCst);
}

/// What has wanted it is about to be done.
pub fn is_answered() {
    WANTED.store(false, Ordering::SeqCst);
}

/// The thread is about to make a system call of the program that may wait: from here to the call's end it is not interrupted. One that was sent before comes
/// before this returns.
pub fn enter_kernel() {
    IN_CALL.store(1, Ordering::SeqCst);
    let mut sends = SENDS.load(Ordering::SeqCst);
    if sends == SEEN.load(Ordering::Relaxed) {
        return;
    }
    while !sends.is_multiple_of(2) {
        sys::sched_yield();
        sends = SENDS.load(Ordering::SeqCst);
    }
    // The kernel delivers on the way back from any call what is pending and not blocked.
    sys::gettid();
    SEEN.store(sends, Ordering::Relaxed);
}

/// The thread is not in a call.
pub fn left_kernel() {
    IN_CALL.store(0, Ordering::Relaxed);
}
