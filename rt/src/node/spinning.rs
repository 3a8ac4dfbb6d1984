//! Loops in which the program waits for another node without telling the runtime.
//!
//! Purpose: a node that spins on shared memory keeps its processor, though the node that it waits for may need one. Where two nodes or more share each processor it
//! should give its own away instead. Input: the program's registers at polls. Output: how long to wait for a message ([`PollStep::Wait`]).
//!
//! A loop that only looks has the same registers in each round. So after each miss the next two polls are taken, and compared. One that differs ends it: the
//! program computes. If they are alike the node waits, longer each time, until a message comes: nothing else changes shared memory. A loop that only seems to look,
//! because it keeps all its state in memory, loses [`MOST_NS`] for each of its misses at most.
//!
//! **Invariant**: nothing but time depends on it.

/// The first wait.
const FIRST_NS: u64 = 50_000;
/// All waits together, until another miss: about a time slice, which is what the peer waits for at most.
const MOST_NS: u64 = 3_000_000;

/// What is known of the loop that the program may be in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spinning {
    /// The next poll is to be looked at.
    is_armed: bool,
    /// The registers at the last poll, as a hash, if that was looked at.
    seen: Option<u64>,
    /// How long all waits have been.
    waited_ns: u64,
}

/// What to do at a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStep {
    /// Nothing: the program computes, or nobody has asked.
    Done,
    /// Take the next poll, too.
    Again,
    /// Wait for a message for so long at most, and take the next poll.
    Wait { ns: u64 },
}

impl Spinning {
    /// Whether [`Spinning::poll`] wants to know of the next poll.
    pub fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// The program has missed, and goes on: perhaps to look at what it has got, again and again.
    pub fn arm(&mut self) {
        *self = Spinning { is_armed: true, ..Spinning::default() };
    }

    /// A poll is taken. `has_come`: so has a message, which may have changed what the program looks at.
    pub fn poll(&mut self, registers: u64, has_come: bool) -> PollStep {
        if !self.is_armed {
            return PollStep::Done;
        }
        if has_come {
            self.arm();
            return PollStep::Again;
        }
        match self.seen.replace(registers) {
            None => PollStep::Again,
            Some(before) if before == registers && self.waited_ns < MOST_NS => {
                let ns = FIRST_NS.max(self.waited_ns);
                self.waited_ns += ns;
                PollStep::Wait { ns }
            }
            Some(_) => {
                self.is_armed = false;
                PollStep::Done
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_computes_is_left_alone_after_two_polls() {
        let mut spinning = Spinning::default();
        assert_eq!(spinning.poll(1, false), PollStep::Done);
        spinning.arm();
        assert_eq!(
            [spinning.poll(1, false), spinning.poll(2, false), spinning.poll(2, false)],
            [PollStep::Again, PollStep::Done, PollStep::Done]
        );
    }

    #[test]
    fn a_loop_that_looks_waits_longer_and_longer_up_to_a_limit() {
        let mut spinning = Spinning::default();
        spinning.arm();
        assert_eq!(spinning.poll(1, false), PollStep::Again);
        let mut waits = Vec::new();
        while let PollStep::Wait { ns } = spinning.poll(1, false) {
            waits.push(ns);
        }
        assert_eq!(waits[..4], [FIRST_NS, FIRST_NS, 2 * FIRST_NS, 4 * FIRST_NS]);
        let sum: u64 = waits.iter().sum();
        assert!((MOST_NS..3 * MOST_NS).contains(&sum), "{sum}");
        assert_eq!(spinning.poll(1, false), PollStep::Done);
    }

    #[test]
    fn a_message_begins_it_again() {
        let mut spinning = Spinning::default();
        spinning.arm();
        assert_eq!(spinning.poll(1, false), PollStep::Again);
        assert_eq!(spinning.poll(1, true), PollStep::Again);
        assert_eq!(spinning.poll(1, false), PollStep::Again);
        assert!(matches!(spinning.poll(1, false), PollStep::Wait { .. }));
    }
}
