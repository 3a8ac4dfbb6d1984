//! A signal to the own thread after a while.
//!
//! Purpose: code without polls comes back to the runtime when nobody else calls it. Input: a time. Output: a [`CALL_SIGNAL`], once for each time that was asked
//! for last. **Invariant**: a timer belongs to one process: a child of `fork` has none, and calls [`forget`].
//! Source: `timer_create(2)`.

use crate::kernel::owned::per_thread;
use crate::kernel::sys;
use blizzard_contract::CALL_SIGNAL;
use core::sync::atomic::{AtomicI32, Ordering};

/// `SIGEV_THREAD_ID` (Linux `include/uapi/asm-generic/siginfo.h`).
const TO_THREAD: i32 = 4;
const NONE: i32 = -1;

per_thread! {
    static TIMER: AtomicI32 = AtomicI32::new(NONE);
}

/// `struct sigevent`.
#[repr(C)]
struct Event {
    value: u64,
    signal: i32,
    how: i32,
    thread: i32,
    rest: [i32; 11],
}
const _: () = assert!(size_of::<Event>() == 64);

/// Sends the signal after so many nanoseconds. Where the kernel has no timer for it, nothing comes.
pub fn call_after(ns: u64) {
    let mut timer = TIMER.load(Ordering::Relaxed);
    if timer == NONE {
        let thread = sys::gettid();
        let event = Event { value: 0, signal: CALL_SIGNAL, how: TO_THREAD, thread, rest: [0; 11] };
        let clock = libc::CLOCK_MONOTONIC as u64;
        let args = [clock, &raw const event as u64, &raw mut timer as u64, 0, 0, 0];
        // SAFETY: the kernel reads the event and writes the number.
        if unsafe { sys::call(libc::SYS_timer_create, args) }.is_err() {
            return;
        }
        TIMER.store(timer, Ordering::Relaxed);
    }
    let time = [0, 0, ns / 1_000_000_000, ns % 1_000_000_000];
    // SAFETY: the kernel reads four words.
    let _ = unsafe { sys::call(libc::SYS_timer_settime, [timer as u64, 0, time.as_ptr() as u64, 0, 0, 0]) };
}

/// In a child: it has none of its parent's timers.
pub fn forget() {
    TIMER.store(NONE, Ordering::Relaxed);
}
