//! Requests ahead: asks for the blocks that the history says come next.
//!
//! Input: a miss that waits. Output: requests that nobody waits for.

use crate::engine::access::Engine;
use crate::engine::miss_history::HistoryStep;
use crate::engine::replace::AheadAnswer;
use crate::ids::Block;
use crate::port::Port;
use crate::storage::Storage;
use blizzard_contract::{BLOCK_MAX_BYTES, Counter};

/// Steps that are looked at for each block that is asked for, at most: others are here already.
const LOOKED_AT: u64 = 4;

impl<M: Storage> Engine<M> {
    /// The access in progress waits for a block: notes it, and asks for what is likely to be missed next.
    #[inline]
    pub(crate) fn follow_history<P: Port>(&mut self, port: &mut P, block: Block, store: bool) {
        if self.history.most != 0 {
            self.history.missed(block, store);
            self.ask_ahead(port);
        }
    }

    /// Asks for the blocks that the history says come next, as far as that makes sense.
    pub(crate) fn ask_ahead<P: Port>(&mut self, port: &mut P) {
        let depth = self.history.depth();
        let (mut asked, mut bytes) = (0, 0);
        for _ in 0..u64::from(depth) * LOOKED_AT {
            let Some((block, store, steps)) = self.history.expected() else { return };
            // Larger blocks are several messages each, and a ring holds only so many.
            let more = port.block_bytes(block.addr());
            if asked == depth || bytes + more > BLOCK_MAX_BYTES {
                return;
            }
            match self.ask_block(port, block, store, false) {
                AheadAnswer::Yes => {
                    port.count(Counter::AskedAhead);
                    self.history.append(HistoryStep::miss(block, store));
                    (asked, bytes) = (asked + 1, bytes + more);
                }
                AheadAnswer::NotNeeded => {}
                AheadAnswer::TooMany => return,
            }
            self.history.next += steps;
        }
    }
}
