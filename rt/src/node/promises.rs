//! Accesses against the promise of their memory's protocol, for `blizzard run --debug-protocols`.
//!
//! Input: each access of the program to memory whose protocol is not sequentially consistent, before it is made; flushes. Output: nothing, or the run's end.
//! What ends it:
//! * A load, elsewhere, of a byte that the home has stored since its last flush: it gives the value from before or the new one, whichever the copies have. Stores
//!   of other nodes are seen without a flush.
//! * A store to a byte that another node has stored since its last flush: two writers, one of whom wins. Not of atomic instructions, all of which count.
//!
//! **Invariants**: a record of a store stands before the store; a flush counts when its pushes have been taken. So what is reported has happened, though
//! another run of the program may not have it.

use crate::links::ending;
use crate::node::access::Lane;
use crate::node::node::Node;
use blizzard_contract::{PROMISE_WORD_BYTES, STAMP_SHIFT};
use blizzard_protocol::ids::NodeId;
use core::hint;
use core::sync::atomic::{Ordering, fence};

/// The words of a range that are in the segment, as distances from its start, each with a bit for each of its bytes that the range has.
fn words(distance: u64, bytes: u64, segment_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = distance.saturating_add(bytes).min(segment_bytes);
    let first = distance & !(PROMISE_WORD_BYTES - 1);
    (first..end).step_by(PROMISE_WORD_BYTES as usize).map(move |word| {
        let (from, to) = (distance.max(word) - word, (end - word).min(PROMISE_WORD_BYTES));
        (word, (0xff << from) & (0xff >> (PROMISE_WORD_BYTES - to)))
    })
}

impl Node {
    /// The program is about to make this access. `place`: as in [`BrokenPromise`](blizzard_contract::BrokenPromise). `is_atomic`: no store can come between its parts.
    pub fn watch(&self, place: u64, Lane { addr, bytes, store, masked }: Lane, is_atomic: bool) {
        // A masked access may leave all of it alone.
        if masked || !self.space.contains(addr) || !self.is_promised(addr) {
            return;
        }
        let home = self.home_table.home_of(&self.homes, addr);
        for (word, mask) in words(addr - self.space.range().start, bytes, self.space.bytes()) {
            if store {
                let plain = if is_atomic { 0 } else { mask << PROMISE_WORD_BYTES };
                self.note_store(place, word, plain | mask);
                for other in (0..self.homes.nodes()).filter_map(NodeId::new) {
                    self.expect_no_store(other, word, plain, true);
                }
            } else if let Some(home) = home {
                self.expect_no_store(home, word, mask, false);
            }
        }
    }

    /// Looks whether another node has stored to some of these bytes of a word since its last flush. `bytes`: bits of a stamp.
    fn expect_no_store(&self, other: NodeId, word: u64, bytes: u64, store: bool) {
        if other == self.me {
            return;
        }
        let [stamp, by] = self.region.store_record(other, word);
        let seen = stamp.load(Ordering::Acquire);
        let stored = seen & bytes;
        if stored != 0 && seen >> STAMP_SHIFT == self.region.context(other).flushes().load(Ordering::Acquire) {
            let at = self.space.range().start + word + u64::from(stored.trailing_zeros()) % PROMISE_WORD_BYTES;
            self.break_promise(at, store, other, by.load(Ordering::Relaxed));
        }
    }

    /// Whether the promise of an address's protocol is one that programs can break.
    fn is_promised(&self, addr: u64) -> bool {
        self.homes.arena_of(addr).is_some_and(|arena| arena.protocol().is_for_one_writer())
    }

    /// `bytes`: bits of a stamp.
    fn note_store(&self, place: u64, word: u64, bytes: u64) {
        let [stamp, by] = self.region.store_record(self.me, word);
        let (flushes, before) = (self.context.flushes().load(Ordering::Relaxed), stamp.load(Ordering::Relaxed));
        let others = if before >> STAMP_SHIFT == flushes { before & ((1 << STAMP_SHIFT) - 1) } else { 0 };
        by.store(place, Ordering::Relaxed);
        stamp.store(flushes << STAMP_SHIFT | others | bytes, Ordering::Release);
        // Of two nodes that store at the same time one sees the other's record.
        fence(Ordering::SeqCst);
    }

    /// Ends the run, unless another node does so for the same reason.
    #[cold]
    fn break_promise(&self, at: u64, store: bool, storer: NodeId, place: u64) -> ! {
        if !self.region.break_promise(self.me, storer, place) {
            while !self.transport.is_aborted() {
                hint::spin_loop();
            }
            ending::end_process(ending::EXIT_FAILED, "the run was ended by another node");
        }
        let protocol = self.homes.arena_of(at).map_or("", |arena| arena.protocol().name());
        let storer = storer.index();
        let (what, promise) = match store {
            true => ("stores to", "is for one writer at a time, until it flushes"),
            false => ("loads", "shows other nodes what its writer has flushed"),
        };
        self.fail_at(
            at,
            format_args!(
                "it {what} {at:#x}, which node {storer} has stored to and not flushed: memory with the protocol `{protocol}` {promise} \
                 (a barrier, bz_unlock, bz_flush and the like)"
            ),
        )
    }

    /// A flush of this node is over.
    pub fn end_promises(&self) {
        if self.region.has_promises() {
            self.context.flushes().fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Memory is handed out again: what was stored to it before is nothing to its new owner.
    pub fn forget_stores(&self, addr: u64, bytes: u64) {
        if !self.region.has_promises() || !self.is_promised(addr) {
            return;
        }
        for (word, _) in words(addr - self.space.range().start, bytes, self.space.bytes()) {
            for node in (0..self.homes.nodes()).filter_map(NodeId::new) {
                let [stamp, _] = self.region.store_record(node, word);
                if stamp.load(Ordering::Relaxed) != 0 {
                    stamp.store(0, Ordering::Relaxed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_a_range_has_its_bit() {
        let of = |distance, bytes| words(distance, bytes, 64).collect::<Vec<_>>();
        assert_eq!(of(8, 8), [(8, 0xff)]);
        assert_eq!(of(9, 2), [(8, 0b110)]);
        assert_eq!(of(6, 12), [(0, 0b1100_0000), (8, 0xff), (16, 0b11)]);
        assert_eq!((of(60, 100), of(16, 0)), (vec![(56, 0b1111_0000)], vec![]));
    }
}
