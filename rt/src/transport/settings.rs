//! Settings of the runtime, in one table.
//!
//! Purpose: how long a node spins, yields and sleeps while it waits. Input: the run's nodes and processors, from the region
//! header. Output: [`Waiting`], whose settings do not change during a run, [`Spins`], which adapts between two of them, and [`Yields`], which
//! says when yielding is of no use.
//!
//! | setting | a processor per node | fewer processors than nodes | why |
//! |---|---|---|---|
//! | `spins_min` | 20 | 20 | pauses of half a microsecond (24 ns each, measured): a whole miss takes 0.3 µs when the peer is looking at its rings |
//! | `spins_max` | 500 | 20 | a peer that has a processor is worth waiting for a little longer than a switch to another program takes |
//! | `yields` | 20 | 20 | a yield costs less than a sleep and a wake-up, as long as the peer gets to run |
//! | `sleep_ns` | 50 ms | 50 ms | longest sleep between two looks at the region's abort word |

/// How a node waits: so many looks with a pause in between, then so many with a `sched_yield`, then sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub spins_min: u32,
    pub spins_max: u32,
    pub yields: u32,
    /// Longest sleep, in nanoseconds. Messages and the end of the run wake a sleeper; this bounds the wait if a wake-up is lost
    /// because the peer died between its message and its wake-up.
    pub sleep_ns: u64,
}

impl Waiting {
    /// The settings for `nodes` nodes on `cpus` processors.
    pub const fn new(nodes: u32, cpus: u32) -> Waiting {
        let spins_max = if nodes <= cpus { 500 } else { 20 };
        Waiting { spins_min: 20, spins_max, yields: 20, sleep_ns: 50_000_000 }
    }
}

/// Whether a wait may yield. Where other programs want the processor, too, a yield costs their whole time slice (and Linux 6.18 takes the rest of
/// its own from whoever yields, so that nodes that yield to each other get next to nothing): milliseconds for each miss. A sleeper
/// comes back as soon as its message wakes it. So a yield that took long is followed by waits that sleep at once, and the more of them the
/// more often that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Yields {
    /// Waits that sleep at once, before the next yield.
    rest: u32,
    /// How many it will be after the next long yield.
    next_rest: u32,
}

/// Cycles of the time-stamp counter that no switch to a peer and back takes, and every time slice of another program does: 0.1 to 0.5 ms.
const LONG_YIELD_CYCLES: u64 = 500_000;
const REST_MIN: u32 = 16;
const REST_MAX: u32 = 4096;

impl Yields {
    /// Yields are tried.
    pub const FRESH: Yields = Yields { rest: 0, next_rest: REST_MIN };

    /// A yield may be tried.
    pub const fn may(self) -> bool {
        self.rest == 0
    }

    /// A yield took so many cycles.
    pub fn took(&mut self, cycles: u64) {
        if cycles >= LONG_YIELD_CYCLES {
            self.rest = self.next_rest;
            self.next_rest = (self.next_rest * 2).min(REST_MAX);
        } else {
            self.next_rest = (self.next_rest - 1).max(REST_MIN);
        }
    }

    /// The wait goes to sleep.
    pub fn slept(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }
}

/// The present number of looks with a pause. Other programs may hold the processors that the launcher counted: then a peer
/// does not run while this node spins, and every spin makes it wait. So a spin in vain halves the next one, and one that
/// brought a message doubles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spins {
    now: u32,
}

impl Spins {
    pub const fn new(waiting: &Waiting) -> Spins {
        Spins { now: waiting.spins_max }
    }

    pub const fn now(self) -> u32 {
        self.now
    }

    /// A message came during the spin.
    pub fn answered(&mut self, waiting: &Waiting) {
        self.now = (self.now * 2).min(waiting.spins_max);
    }

    /// All looks were in vain.
    pub fn in_vain(&mut self, waiting: &Waiting) {
        self.now = (self.now / 2).max(waiting.spins_min);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowded_machine_yields_early() {
        assert!(Waiting::new(4, 2).spins_max < Waiting::new(2, 2).spins_max / 10);
        assert_eq!(Waiting::new(2, 2), Waiting::new(1, 8));
    }

    /// Yielding to a program that computes all the time made each miss of two nodes take 2.4 ms.
    #[test]
    fn long_yields_become_rare() {
        let mut yields = Yields::FRESH;
        let (mut long, mut sleeps) = (0, 0);
        while sleeps < 100_000 {
            if yields.may() {
                yields.took(5_000_000);
                long += 1;
            } else {
                yields.slept();
                sleeps += 1;
            }
        }
        assert!(long < 50, "{long}");
        // And come back when nobody else wants the processor any more.
        while !yields.may() {
            yields.slept();
        }
        for _ in 0..REST_MAX {
            yields.took(3_000);
            assert!(yields.may());
        }
        assert_eq!(yields, Yields::FRESH);
    }

    #[test]
    fn spins_adapt_within_their_bounds() {
        let waiting = Waiting::new(2, 2);
        let mut spins = Spins::new(&waiting);
        for _ in 0..10 {
            spins.in_vain(&waiting);
        }
        assert_eq!(spins.now(), waiting.spins_min);
        for _ in 0..10 {
            spins.answered(&waiting);
        }
        assert_eq!(spins.now(), waiting.spins_max);
    }
}
