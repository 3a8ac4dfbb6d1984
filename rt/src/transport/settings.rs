//! Settings of the runtime, in one table.
//!
//! Purpose: how long a node spins, yields and sleeps while it waits. Input: the run's nodes and processors, from the region
//! header. Output: [`WaitSettings`], whose settings do not change during a run, [`Spins`], which adapts between two of them, and [`Attempts`], which
//! says when something is of no use.
//!
//! | setting | a processor per node | fewer processors than nodes | why |
//! |---|---|---|---|
//! | `spins_min` | 100 | 20 | pauses of 2 or half a microsecond (24 ns each, measured): a whole miss takes 0.3 to 0.8 µs when the peer runs |
//! | `spins_max` | 500 | 20 | a peer that has a processor is worth waiting for a little longer than a switch to another program takes |
//! | `spins_most` | 80,000 | 20 | while all run who have something to do ([`crate::transport::peers::company`]); then a sleep and a wake-up are a small part of the wait |
//! | all three, the only node of a host beside its carrier | | 1 | nobody tells it anything while it spins |
//! | `yields` | 20 | 20 | a yield costs less than a sleep and a wake-up, as long as the peer gets to run |
//! | `sleep_ns` | 50 ms | 50 ms | longest sleep between two looks at the region's abort word |

/// How a node waits: so many looks with a pause in between, then so many with a `sched_yield`, then sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSettings {
    pub spins_min: u32,
    pub spins_max: u32,
    pub spins_most: u32,
    /// Two nodes or more share each processor.
    pub is_shared: bool,
    pub yields: u32,
    /// Longest sleep, in nanoseconds. Messages and the end of the run wake a sleeper; this bounds the wait if a wake-up is lost
    /// because the peer died between its message and its wake-up.
    pub sleep_ns: u64,
}

impl WaitSettings {
    /// There are fewer processors than nodes.
    pub const fn is_crowded(&self) -> bool {
        self.spins_most == self.spins_min
    }

    /// The same where a carrier of messages to other hosts shares a crowded host's processors: an answer takes longer than a sleep and a wake-up of the
    /// processor itself. `alone`: nobody but the carrier tells this node anything, and it does not while the node spins.
    pub const fn beside_carrier(self, alone: bool) -> WaitSettings {
        let settings = WaitSettings { yields: 200, ..self };
        if alone && self.is_crowded() {
            return WaitSettings { spins_min: 1, spins_max: 1, spins_most: 1, ..settings };
        }
        settings
    }

    /// The settings for `nodes` nodes on `cpus` processors.
    pub const fn new(nodes: u32, cpus: u32) -> WaitSettings {
        let (spins_min, spins_max, spins_most) = if nodes <= cpus { (100, 500, 80_000) } else { (20, 20, 20) };
        let is_shared = nodes >= 2 * cpus;
        WaitSettings { spins_min, spins_max, spins_most, is_shared, yields: 20, sleep_ns: 50_000_000 }
    }
}

/// Whether a wait tries something that is of no use where other programs want the processors, too. Each time in vain is followed by waits that do without, and the
/// more of them the more often that happens.
///
/// * *A yield* costs the whole time slice of another program (and Linux 6.18 takes the rest of its own from whoever yields, so that nodes that yield to each other get
///   next to nothing): milliseconds for each miss. A sleeper comes back as soon as its message wakes it.
/// * *A spin* that goes on while the peers run ([`crate::transport::peers::company`]) makes a peer wait longer if it does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// Waits that do without, before the next attempt.
    rest: u32,
    /// How many it will be after the next one in vain.
    next_rest: u32,
}

/// Cycles of the time-stamp counter that no switch to a peer and back takes, and every time slice of another program does: 0.1 to 0.5 ms.
pub const LONG_YIELD_CYCLES: u64 = 500_000;
const REST_MIN: u32 = 16;
const REST_MAX: u32 = 4096;

impl Attempts {
    /// It is tried.
    pub const FRESH: Attempts = Attempts { rest: 0, next_rest: REST_MIN };

    /// It may be tried.
    pub const fn may(self) -> bool {
        self.rest == 0
    }

    /// It was tried in vain.
    pub fn in_vain(&mut self) {
        self.rest = self.next_rest;
        self.next_rest = (self.next_rest * 2).min(REST_MAX);
    }

    /// It was tried and of use.
    pub fn of_use(&mut self) {
        self.next_rest = (self.next_rest - 1).max(REST_MIN);
    }

    /// A wait has done without.
    pub fn done_without(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }
}

/// The present number of looks with a pause. Other programs may hold the processors that the launcher counted: then a peer
/// does not run while this node spins, and every spin makes it wait. So a spin in vain halves the next one, and one that
/// brought a message doubles it. A wait may go on for longer ([`Spins::go_on`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spins {
    now: u32,
    /// Of this wait: more than `now` if it goes on.
    limit: u32,
}

impl Spins {
    pub const fn new(waiting: &WaitSettings) -> Spins {
        Spins { now: waiting.spins_max, limit: waiting.spins_max }
    }

    pub const fn now(self) -> u32 {
        self.now
    }

    /// Looks of this wait.
    pub const fn limit(self) -> u32 {
        self.limit
    }

    /// Whether this wait goes on already.
    pub const fn goes_on(self) -> bool {
        self.limit > self.now
    }

    /// This wait goes on, up to so many looks.
    pub fn go_on(&mut self, looks: u32) {
        self.limit = looks;
    }

    /// A message came during the spin.
    #[inline(always)]
    pub fn answered(&mut self, waiting: &WaitSettings) {
        // As nearly always where processors suffice.
        if self.limit != waiting.spins_max {
            self.now = (self.now * 2).min(waiting.spins_max);
            self.limit = self.now;
        }
    }

    /// All looks were in vain.
    pub fn in_vain(&mut self, waiting: &WaitSettings) {
        self.now = (self.now / 2).max(waiting.spins_min);
        self.limit = self.now;
    }

    /// The longest spin is over.
    pub fn end(&mut self) {
        self.limit = self.now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowded_machine_yields_early() {
        assert!(WaitSettings::new(4, 2).spins_max < WaitSettings::new(2, 2).spins_max / 10);
        assert_eq!(WaitSettings::new(2, 2), WaitSettings::new(1, 8));
    }

    /// Yielding to a program that computes all the time made each miss of two nodes take 2.4 ms.
    #[test]
    fn attempts_in_vain_become_rare() {
        let mut yields = Attempts::FRESH;
        let (mut long, mut without) = (0, 0);
        while without < 100_000 {
            if yields.may() {
                yields.in_vain();
                long += 1;
            } else {
                yields.done_without();
                without += 1;
            }
        }
        assert!(long < 50, "{long}");
        // And come back when nobody else wants the processor any more.
        while !yields.may() {
            yields.done_without();
        }
        for _ in 0..REST_MAX {
            yields.of_use();
            assert!(yields.may());
        }
        assert_eq!(yields, Attempts::FRESH);
    }

    #[test]
    fn spins_adapt_within_their_bounds() {
        let waiting = WaitSettings::new(2, 2);
        let mut spins = Spins::new(&waiting);
        for _ in 0..10 {
            spins.in_vain(&waiting);
        }
        assert_eq!(spins.now(), waiting.spins_min);
        for _ in 0..10 {
            spins.answered(&waiting);
        }
        assert_eq!(spins.now(), waiting.spins_max);
        spins.go_on(2 * waiting.spins_max);
        assert!(spins.goes_on() && spins.limit() == 2 * spins.now());
        spins.answered(&waiting);
        assert!(!spins.goes_on() && spins.limit() == spins.now());
    }
}
