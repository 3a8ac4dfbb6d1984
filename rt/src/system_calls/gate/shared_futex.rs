//! Futexes on shared memory.
//!
//! Purpose: the kernel knows only this node's copy of a shared word, so nobody on another node could wake who sleeps on it. A wait gives way
//! once and reports a wake-up; callers look at the word again, as they must after any wake-up. Input: the call's arguments. Output: its result.
//! **Invariant**: a wait with a timeout ends in time, whatever the other nodes do: an absolute one is compared with its clock at each call, a
//! relative one is waited for here, since the next call would begin it anew.
//! Source: futex(2); glibc's `sem_timedwait` and its like pass absolute times.

use crate::kernel::sys;
use crate::memory::access_control::program::runtime_address;
use crate::process::accesses;
use crate::process::process;
use crate::system_calls::execution::put_off::PUT_OFF;
use core::sync::atomic::Ordering;

/// `futex` on a word in the segment.
pub fn on_shared_word(args: &[u64; 6]) -> i64 {
    let operation = args[1] as i32;
    match operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => 0,
        libc::FUTEX_WAIT => wait(args, Limit::of(read_time(args[3]), None)),
        libc::FUTEX_WAIT_BITSET => {
            let realtime = operation & libc::FUTEX_CLOCK_REALTIME != 0;
            let clock = if realtime { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
            wait(args, Limit::of(read_time(args[3]), Some(clock.into())))
        }
        operation => process::fail(format_args!(
            "futex operation {operation} on shared memory at {:#x} is not supported in a run of several nodes",
            args[0]
        )),
    }
}

/// When a wait ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Never,
    /// At that time of a clock, in nanoseconds.
    At(i64, i64),
    /// After so many nanoseconds.
    After(i64),
    /// No time at all: the kernel refuses the call.
    Invalid,
}

impl Limit {
    /// From seconds and nanoseconds; `clock`: whose time they are, if they are not relative.
    fn of(time: Option<[i64; 2]>, clock: Option<i64>) -> Limit {
        let Some([seconds, rest]) = time else { return Limit::Never };
        if seconds < 0 || !(0..1_000_000_000).contains(&rest) {
            return Limit::Invalid;
        }
        let ns = seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        clock.map_or(Limit::After(ns), |clock| Limit::At(clock, ns))
    }
}

/// The `struct timespec` at an address, if there is one.
fn read_time(addr: u64) -> Option<[i64; 2]> {
    if addr == 0 {
        return None;
    }
    accesses::require(addr, 16, false, false);
    // SAFETY: the program passes a structure, which is readable now.
    Some(unsafe { runtime_address(addr).cast::<[i64; 2]>().read_unaligned() })
}

/// Whether the word still is what the caller believes.
fn is_unchanged(args: &[u64; 6]) -> bool {
    accesses::require(args[0], 4, false, false);
    // SAFETY: readable now.
    unsafe { runtime_address(args[0]).cast::<u32>().read_volatile() == args[2] as u32 }
}

fn wait(args: &[u64; 6], limit: Limit) -> i64 {
    if limit == Limit::Invalid {
        return -i64::from(libc::EINVAL);
    }
    if !is_unchanged(args) {
        return -i64::from(libc::EAGAIN);
    }
    let started = sys::monotonic_ns() as i64;
    loop {
        process::poll();
        sys::sched_yield();
        match limit {
            Limit::At(clock, end) if sys::clock_ns(clock) >= end => return -i64::from(libc::ETIMEDOUT),
            Limit::After(ns) => {
                if !is_unchanged(args) {
                    return 0;
                }
                if sys::monotonic_ns() as i64 - started >= ns {
                    return -i64::from(libc::ETIMEDOUT);
                }
                // The program's handler runs as soon as the call is over.
                if PUT_OFF.load(Ordering::Relaxed) != 0 {
                    return -i64::from(libc::EINTR);
                }
            }
            _ => return 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_unless_a_clock_is_given() {
        assert_eq!(Limit::of(None, Some(1)), Limit::Never);
        assert_eq!(Limit::of(Some([2, 5]), None), Limit::After(2_000_000_005));
        assert_eq!(Limit::of(Some([2, 5]), Some(1)), Limit::At(1, 2_000_000_005));
        assert_eq!(Limit::of(Some([i64::MAX, 5]), None), Limit::After(i64::MAX));
        for time in [[-1, 0], [0, -1], [0, 1_000_000_000]] {
            assert_eq!(Limit::of(Some(time), None), Limit::Invalid, "{time:?}");
        }
    }
}
