//! Time spent waiting.
//!
//! Purpose: measure waits without a system call each. Cycles of the time-stamp counter are summed and converted to nanoseconds now
//! and then, with the rate seen since the start. Output: the `*_wait_ns` counters of the shared context page.
//! **Invariant**: the counters only grow, and lag behind by at most the waits since the last [`WaitClock::fold`].
//! Source: SDM volume 3, 19.17 (time-stamp counter).

use crate::abi::Counter;
use crate::region::Context;
use crate::sys;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Miss,
    Barrier,
    Lock,
    /// Allocation, lookup, the end of the other nodes: not counted.
    Other,
}

const COUNTED: [(Wait, Counter); 3] =
    [(Wait::Miss, Counter::MissWaitNs), (Wait::Barrier, Counter::BarrierWaitNs), (Wait::Lock, Counter::LockWaitNs)];

/// The time-stamp counter.
#[inline]
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has it, and Linux leaves it enabled for user mode.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Sums of waits.
pub struct WaitClock {
    start_cycles: u64,
    start_ns: u64,
    /// Not yet converted, by position in [`COUNTED`].
    pending: [u64; COUNTED.len()],
}

impl WaitClock {
    pub fn start() -> WaitClock {
        WaitClock { start_cycles: cycles(), start_ns: sys::monotonic_ns(), pending: [0; COUNTED.len()] }
    }

    /// A wait that began when the time-stamp counter was `since` is over.
    #[inline]
    pub fn waited(&mut self, what: Wait, since: u64) {
        // Another processor's counter may be a little behind.
        let spent = cycles().saturating_sub(since);
        for (sum, (counted, _)) in self.pending.iter_mut().zip(COUNTED) {
            if counted == what {
                *sum += spent;
            }
        }
    }

    /// Converts what has been summed.
    pub fn fold(&mut self, context: &Context) {
        let cycles = cycles().saturating_sub(self.start_cycles);
        let ns = sys::monotonic_ns().saturating_sub(self.start_ns);
        for (sum, (_, counter)) in self.pending.iter_mut().zip(COUNTED) {
            let spent = core::mem::take(sum);
            if let Some(spent_ns) = (u128::from(spent) * u128::from(ns)).checked_div(u128::from(cycles)) {
                context.add(counter, spent_ns as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::NodeId;
    use crate::region::testing::TestRegion;

    #[test]
    fn waits_become_nanoseconds() {
        let test = TestRegion::new(1, 1, 1 << 20, 4);
        let context = test.region.context(NodeId::new(0).unwrap());
        let mut clock = WaitClock::start();
        let (since, since_ns) = (cycles(), sys::monotonic_ns());
        while sys::monotonic_ns() < since_ns + 3_000_000 {}
        clock.waited(Wait::Barrier, since);
        clock.waited(Wait::Other, since);
        let upper = sys::monotonic_ns() - since_ns;
        clock.fold(&context);
        clock.fold(&context);
        let ns = context.counter(Counter::BarrierWaitNs);
        // The rate is that of the same interval, so only its ends can differ.
        assert!((2_500_000..upper + 500_000).contains(&ns), "{ns}");
        assert_eq!(context.counter(Counter::MissWaitNs) + context.counter(Counter::LockWaitNs), 0);
    }
}
