//! Settings of the runtime, in one table.
//!
//! Purpose: how long a node spins, yields and sleeps while it waits. Input: the run's nodes and processors, from the region
//! header. Output: [`Waiting`], whose settings do not change during a run, and [`Spins`], which adapts between two of them.
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
