//! Safe points: polls and system calls, where nothing of the program waits between a check and its access.
//!
//! Input: what was put off. Output: it is let in, its handlers have run.

use crate::kernel::later;
use crate::kernel::sys;
use crate::system_calls::execution::put_off::{PUT_OFF, letting_in, take_put_off};
use crate::system_calls::execution::signal_sets::{HELD, SYNCHRONOUS, UNBLOCKED, UNBLOCKED_ALONE};
use crate::system_calls::execution::situation;
use crate::system_calls::signals::sent;
use core::sync::atomic::Ordering;

/// In a child, which has no pending signals: what was put off on the parent's way into the call is not blocked in the child either.
pub fn unblock_in_child() {
    sent::forget();
    later::forget();
    sys::unblock_signals(take_put_off() & !UNBLOCKED);
}

/// Lets in what was put off in a child of `vfork`, which is about to make a call: its last ones are those that execute another program or end it, and the
/// memory that says what is put off is its parent's.
pub fn in_vfork_child() {
    let put_off = PUT_OFF.fetch_and(HELD, Ordering::Relaxed) & !HELD;
    if put_off != 0 {
        letting_in(|| sys::unblock_signals(put_off));
    }
}

/// Lets put-off signals in. Called where the program may run a handler: at the end of a poll.
pub fn safe_point() {
    // Other threads than that of `tempest.h` put nothing off.
    if PUT_OFF.load(Ordering::Relaxed) == 0 && !sent::is_waiting()
        || situation::uses_tempest_alone() && !situation::is_tempest_thread()
    {
        return;
    }
    let put_off = take_put_off();
    // The kernel delivers them before the call returns.
    letting_in(|| sys::unblock_signals(put_off));
    sent::let_in();
}

/// Blocks what is not raised by instructions, and returns the mask as the program knows it: without what is put off.
pub fn hold() -> u64 {
    let reserved = if situation::uses_tempest_alone() { UNBLOCKED_ALONE } else { UNBLOCKED };
    let mask = sys::set_signal_mask(!(SYNCHRONOUS & !UNBLOCKED | reserved));
    // What is held is in the mask only if the program has it there.
    mask & !(PUT_OFF.fetch_and(HELD, Ordering::Relaxed) & !HELD)
}

/// Replaces the mask at a safe point: what it no longer blocks comes in before this returns.
pub fn set_mask(mask: u64) {
    letting_in(|| {
        sys::set_signal_mask(mask);
    });
}
