//! Time spent waiting.
//!
//! Purpose: measure waits without a system call each. Cycles of the time-stamp counter are summed and converted to nanoseconds now
//! and then, with the rate seen since the start. Output: the `*_wait_ns` counters of the shared context page.
//! **Invariant**: the counters only grow, and lag behind by at most the waits since the last [`WaitClock::fold`].
//! A fold makes system calls, so calls of the program fold only when [`FOLD_CYCLES`] have passed since the last time.
//! Source: SDM volume 3, 19.17 (time-stamp counter).

use crate::kernel::sys;
use crate::memory::region::ContextPage;
use crate::transport::patience::Wait;
use blizzard_contract::Counter;

const COUNTED: [(Wait, Counter); 3] =
    [(Wait::Miss, Counter::MissWaitNs), (Wait::Barrier, Counter::BarrierWaitNs), (Wait::Lock, Counter::LockWaitNs)];

/// Both clocks at the same moment, as closely as a few tries give it: a process that loses its processor between the two
/// readings would spoil the rate.
fn both_clocks() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..4 {
        let before = sys::cycles();
        let ns = sys::monotonic_ns();
        let gap = sys::cycles().saturating_sub(before);
        if gap < best.0 {
            best = (gap, before + gap / 2, ns);
        }
    }
    (best.1, best.2)
}

/// Cycles between two folds that the program's calls make: about a tenth of a second.
const FOLD_CYCLES: u64 = 1 << 28;

/// Sums of waits.
pub struct WaitClock {
    start_cycles: u64,
    start_ns: u64,
    folded_at: u64,
    /// Not yet converted, by position in [`COUNTED`].
    pending: [u64; COUNTED.len()],
}

impl WaitClock {
    pub fn start() -> WaitClock {
        let (start_cycles, start_ns) = both_clocks();
        WaitClock { start_cycles, start_ns, folded_at: start_cycles, pending: [0; COUNTED.len()] }
    }

    /// A wait that began when the time-stamp counter was `since` is over.
    #[inline]
    pub fn waited(&mut self, what: Wait, since: u64) {
        // Another processor's counter may be a little behind.
        let spent = sys::cycles().saturating_sub(since);
        for (sum, (counted, _)) in self.pending.iter_mut().zip(COUNTED) {
            if counted == what {
                *sum += spent;
            }
        }
    }

    /// Whether it is time for a fold.
    #[inline]
    pub fn is_due(&self) -> bool {
        sys::cycles().wrapping_sub(self.folded_at) > FOLD_CYCLES
    }

    /// Converts what has been summed.
    pub fn fold(&mut self, context: &ContextPage) {
        let (cycles, ns) = both_clocks();
        self.folded_at = cycles;
        let (cycles, ns) = (cycles.saturating_sub(self.start_cycles), ns.saturating_sub(self.start_ns));
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
    use crate::memory::region::testing::TestRegion;
    use blizzard_protocol::ids::NodeId;

    #[test]
    fn waits_become_nanoseconds() {
        let test = TestRegion::new(1, 1, 1 << 20, 4);
        let context = test.region.context(NodeId::new(0).unwrap());
        let mut clock = WaitClock::start();
        // The wait lies within the outer interval and contains the inner one, however often this thread is interrupted.
        let outer = sys::monotonic_ns();
        let since = sys::cycles();
        let inner = sys::monotonic_ns();
        while sys::monotonic_ns() < inner + 3_000_000 {}
        let shortest = sys::monotonic_ns() - inner;
        clock.waited(Wait::Barrier, since);
        let longest = sys::monotonic_ns() - outer;
        clock.waited(Wait::Other, since);
        clock.fold(&context);
        clock.fold(&context);
        let ns = context.counter(Counter::BarrierWaitNs);
        // A tenth for the rate, which is that of a slightly longer interval.
        assert!((shortest - shortest / 10..longest + longest / 10).contains(&ns), "{shortest} {ns} {longest}");
        assert_eq!(context.counter(Counter::MissWaitNs) + context.counter(Counter::LockWaitNs), 0);
    }
}
