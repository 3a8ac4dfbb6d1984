//! Settings of the runtime, in one table.
//!
//! Purpose: how long a node spins, yields and sleeps while it waits. Input: the run's nodes and processors, from the region
//! header. Output: [`Waiting`]. Nothing here changes during a run.
//!
//! | setting | a processor per node | fewer processors than nodes | why |
//! |---|---|---|---|
//! | `spins` | 400 | 20 | an answer from a running peer comes within some hundred nanoseconds; a peer that is not running needs this processor |
//! | `yields` | 100 | 100 | a yield costs less than a sleep and a wake-up, as long as the peer gets to run |
//! | `sleep_ns` | 50 ms | 50 ms | longest sleep between two looks at the region's abort word |

/// How a node waits: so many looks with a pause in between, then so many with a `sched_yield`, then sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub spins: u32,
    pub yields: u32,
    /// Longest sleep, in nanoseconds. Messages and the end of the run wake a sleeper; this bounds the wait if a wake-up is lost
    /// because the peer died between its message and its wake-up.
    pub sleep_ns: u64,
}

impl Waiting {
    /// The settings for `nodes` nodes on `cpus` processors.
    pub const fn new(nodes: u32, cpus: u32) -> Waiting {
        let sleep_ns = 50_000_000;
        if nodes <= cpus {
            Waiting { spins: 400, yields: 100, sleep_ns }
        } else {
            Waiting { spins: 20, yields: 100, sleep_ns }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowded_machine_yields_early() {
        assert!(Waiting::new(4, 2).spins < Waiting::new(2, 2).spins);
        assert_eq!(Waiting::new(2, 2), Waiting::new(1, 8));
    }
}
