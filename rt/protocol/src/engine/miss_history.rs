//! Asking ahead along the history of misses.
//!
//! Purpose: programs that iterate miss the same blocks in the same order again and again. [`MissHistory`] keeps the misses of this node that had to wait, in
//! order. When misses follow a stretch that it has seen before, the blocks that come next there are asked for together with the one that is missed, so that one
//! wait, and where nodes share processors one switch to another process, serves many of them. Input: misses, and waits for other nodes
//! (barriers, locks). Output: requests that nobody waits for, as those of `bz_prefetch`.
//! Source: Wenisch et al., Temporal Streaming of Shared Memory, 2005 (the order of coherence misses repeats; follow the most recent occurrence).
//!
//! Nothing is asked for before several misses in a row were as expected, and then twice as much with each that is. A guess cannot be watched
//! while it is right: nobody sees the program use a block that is there. So each stretch that was asked for ends before a
//! block that was not, and the next miss shows whether the history is still right.
//!
//! **Invariants**
//! * A request ahead is a hint: it changes nothing that the program can see, and is one of the steps that any node may take at any time.
//! * No request goes beyond a wait for other nodes, where what is shared changes hands: before it, a block that is wanted
//!   behind it is still being written.
//! * The history never asks for what is in use ([`crate::engine::access::Engine::is_in_use`]), nor for a page that would have to take the place of another one.

use crate::ids::Block;
use crate::storage::{Storage, Table};

/// Steps that are kept: a power of two.
const STEPS: u64 = 1 << 17;
/// Misses in a row that must have been as expected before anything is asked for.
const SURE: u32 = 4;
/// More of them make it no surer.
const SUREST: u32 = 12;
/// So many steps of the history may be left out by a miss that still follows it: blocks that were here already.
const LEFT_OUT: u64 = 4;

/// A miss, or a border; as a word: the block's address, which leaves the lower bits free, and what is set of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryStep(u64);

const STORE: u64 = 1;
const BORDER: HistoryStep = HistoryStep(2);

impl HistoryStep {
    pub(crate) const fn miss(block: Block, store: bool) -> HistoryStep {
        HistoryStep(block.addr() | if store { STORE } else { 0 })
    }

    /// Where its last position is noted.
    fn place(self) -> u64 {
        // Fibonacci hashing; the lowest bits of an address are its block's.
        (self.0 ^ self.0 << 41).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - STEPS.trailing_zeros())
    }

    /// The block and whether it was stored to; `None` for a border.
    fn as_miss(self) -> Option<(Block, bool)> {
        (self != BORDER).then(|| (Block::of(self.0), self.0 & STORE != 0))
    }
}

/// The misses of one node.
pub struct MissHistory<M: Storage> {
    /// Most requests at a time; 0: nothing is kept.
    pub(crate) most: u32,
    /// By position modulo [`STEPS`].
    steps: M::Table<u64>,
    /// By a hash of the step: its last position, plus one, modulo 2^32.
    places: M::Table<u32>,
    /// Positions handed out so far.
    end: u64,
    /// The step that is expected to come next; nothing is when it is `end`.
    pub(crate) next: u64,
    /// Misses in a row that were as expected.
    agreed: u32,
}

impl<M: Storage> MissHistory<M> {
    /// # Errors
    /// There is no memory.
    pub fn new(most: u32, ring_slots: u32) -> Result<MissHistory<M>, M::Error> {
        // All of them may go to one node, and their answers come from there.
        let most = most.min(ring_slots / 2);
        let steps = if most == 0 { 0 } else { STEPS };
        Ok(MissHistory { most, steps: M::table(steps)?, places: M::table(steps)?, end: 0, next: 0, agreed: 0 })
    }

    /// The history of a node that has missed these blocks before, in that order, and is sure of it.
    #[cfg(feature = "planted")]
    pub fn follow(&mut self, steps: &[(Block, bool)]) {
        steps.iter().for_each(|&(block, store)| self.append(HistoryStep::miss(block, store)));
        self.border();
        (self.next, self.agreed) = (0, SURE);
    }

    /// The step at that position, if it is still there.
    fn step(&self, at: u64) -> Option<HistoryStep> {
        (at < self.end && self.end - at <= STEPS).then(|| HistoryStep(self.steps.get(at % STEPS)))
    }

    /// The last position of that step.
    fn find(&self, step: HistoryStep) -> Option<u64> {
        let place = self.places.get(step.place()).checked_sub(1)?;
        // How far back it is, which is less than 2^32 or too far.
        let back = u64::from((self.end as u32).wrapping_sub(place));
        let at = self.end.checked_sub(back)?;
        (self.step(at) == Some(step)).then_some(at)
    }

    pub(crate) fn append(&mut self, step: HistoryStep) {
        self.steps.set(self.end % STEPS, step.0);
        self.end += 1;
        if step != BORDER {
            self.places.set(step.place(), self.end as u32);
        }
    }

    /// A miss that waits.
    pub(crate) fn missed(&mut self, block: Block, store: bool) {
        let step = HistoryStep::miss(block, store);
        let expected = (self.next..).take(1 + LEFT_OUT as usize).find(|&at| self.step(at) == Some(step));
        let found = match expected {
            Some(at) => {
                self.agreed = (self.agreed + 1).min(SUREST);
                Some(at)
            }
            None => {
                let found = self.find(step);
                self.agreed = if found.is_some() { self.agreed / 4 } else { 0 };
                found
            }
        };
        self.append(step);
        self.next = found.map_or(self.end, |at| at + 1);
    }

    /// This node waits for others.
    pub fn border(&mut self) {
        if self.most != 0 && self.end != 0 && self.step(self.end - 1) != Some(BORDER) {
            self.append(BORDER);
        }
    }

    /// How many blocks may be asked for now.
    pub(crate) fn depth(&self) -> u32 {
        match self.agreed.checked_sub(SURE) {
            Some(more) if self.most != 0 => (1 << more.min(30)).min(self.most),
            _ => 0,
        }
    }

    /// What is expected at position [`MissHistory::next`]: a block, and whether it will be stored to; and the steps that it takes up. A load that is followed by a
    /// store to the same block is taken for the store.
    pub(crate) fn expected(&self) -> Option<(Block, bool, u64)> {
        let (block, store) = self.step(self.next)?.as_miss()?;
        let then_stores = !store && self.step(self.next + 1) == Some(HistoryStep::miss(block, true));
        Some((block, store || then_stores, 1 + u64::from(then_stores)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::vectors::VectorStorage;
    use blizzard_contract::SEGMENT_BASE;

    fn new_history(most: u32, ring_slots: u32) -> Result<MissHistory<VectorStorage>, core::convert::Infallible> {
        MissHistory::new(most, ring_slots)
    }

    fn block(n: u64) -> Block {
        Block::of(SEGMENT_BASE + n * 64)
    }

    /// What the history would ask for after a miss, all of which is taken.
    fn follow(history: &mut MissHistory<VectorStorage>, n: u64, store: bool) -> std::vec::Vec<(u64, bool)> {
        history.missed(block(n), store);
        let mut all = std::vec::Vec::new();
        while (all.len() as u32) < history.depth()
            && let Some((block, store, steps)) = history.expected()
        {
            history.append(HistoryStep::miss(block, store));
            history.next += steps;
            all.push(((block.addr() - SEGMENT_BASE) / 64, store));
        }
        all
    }

    /// An iteration that waits at its end; how many of its misses are left when the history is followed.
    fn iterate(history: &mut MissHistory<VectorStorage>, order: &[u64]) -> usize {
        let (mut misses, mut here) = (0, std::collections::HashSet::new());
        for &n in order {
            if !here.contains(&n) {
                misses += 1;
                here.extend(follow(history, n, false).into_iter().map(|(n, _)| n));
            }
        }
        history.border();
        misses
    }

    fn scattered(count: u64) -> std::vec::Vec<u64> {
        (0..count).map(|n| n * 7919 % 10_007).collect()
    }

    #[test]
    fn an_order_that_repeats_is_foreseen() {
        let mut history = new_history(15, 128).unwrap();
        let order = scattered(1000);
        assert_eq!(iterate(&mut history, &order), 1000);
        for _ in 0..5 {
            let misses = iterate(&mut history, &order);
            assert!(misses <= 1000 / 16 + 12, "{misses}");
        }
    }

    /// Random accesses to few blocks are found on the history each time, but not where they are expected.
    #[test]
    fn what_does_not_repeat_is_not_asked_for() {
        let mut history = new_history(15, 128).unwrap();
        let (mut random, mut asked) = (7u64, 0);
        for _ in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            asked += follow(&mut history, random % 100, false).len();
        }
        assert!(asked < 20, "{asked}");
    }

    #[test]
    fn a_changed_order_is_learnt() {
        let mut history = new_history(15, 128).unwrap();
        let mut order = scattered(600);
        for _ in 0..3 {
            iterate(&mut history, &order);
        }
        // Some blocks are not used any more, and others come in.
        order.retain(|n| n % 10 != 3);
        order[200..260].iter_mut().for_each(|n| *n += 20_000);
        let first = iterate(&mut history, &order);
        let second = iterate(&mut history, &order);
        let third = iterate(&mut history, &order);
        assert!(first > 60 && second < 100 && third < 80, "{first} {second} {third}");
    }

    #[test]
    fn nothing_is_asked_for_beyond_a_border() {
        let mut history = new_history(15, 128).unwrap();
        let (one, two) = (scattered(100), scattered(50).iter().map(|n| n + 20_000).collect::<std::vec::Vec<_>>());
        for _ in 0..3 {
            for part in [&one, &two] {
                let mut here = std::collections::HashSet::new();
                for &n in part.iter() {
                    if !here.contains(&n) {
                        here.extend(follow(&mut history, n, false).into_iter().map(|(n, _)| n));
                    }
                }
                assert!(here.iter().all(|n| part.contains(n)));
                history.border();
                history.border();
            }
        }
    }

    /// A block that is loaded and then stored to is asked for once, to store to it.
    #[test]
    fn a_load_before_a_store_asks_for_both() {
        let mut history = new_history(15, 128).unwrap();
        for _ in 0..2 {
            for n in 0..50 {
                history.missed(block(n), false);
                history.missed(block(n), true);
            }
        }
        history.missed(block(0), false);
        assert_eq!(history.expected(), Some((block(0), true, 1)));
        history.missed(block(0), true);
        assert_eq!(history.expected(), Some((block(1), true, 2)));
    }

    #[test]
    fn the_history_forgets_its_beginning() {
        let mut history = new_history(15, 128).unwrap();
        for n in 0..STEPS + 100 {
            assert!(follow(&mut history, n, false).is_empty());
        }
        assert_eq!((history.find(HistoryStep::miss(block(50), false)), history.step(99)), (None, None));
        let last = STEPS + 99;
        assert_eq!(history.find(HistoryStep::miss(block(last), false)), Some(last));
        // Positions are kept modulo 2^32.
        history.end += u64::from(u32::MAX);
        assert_eq!(history.find(HistoryStep::miss(block(last), false)), None);
    }

    #[test]
    fn without_requests_nothing_is_kept() {
        let mut history = new_history(0, 128).unwrap();
        history.border();
        assert_eq!((history.end, history.depth()), (0, 0));
    }
}
