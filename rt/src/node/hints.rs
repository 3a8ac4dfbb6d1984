//! What becomes of blocks that the program has asked for by hints (`bz_prefetch`, `bz_check_out`).
//!
//! Input: hints and misses. Output: whether a block that is missed was asked for. A copy that is used raises no miss, so its use is not seen. **Invariant**: a block is remembered until
//! it is missed, or another one takes its place: counts of misses are never too high.

use crate::kernel::own_memory::{KernelTable, Zeroed};
use crate::kernel::sys;
use blizzard_contract::BLOCK_SHIFT;
use blizzard_protocol::ids::Block;

/// Blocks that are remembered.
const PLACES: u64 = 1 << 16;

/// A block's address; 0: none.
#[derive(Clone, Copy, Default)]
struct Asked(u64);

// SAFETY: an integer.
unsafe impl Zeroed for Asked {}

/// The blocks that were asked for.
pub struct Hints {
    /// By the low bits of a block's number.
    asked: KernelTable<Asked>,
    is_any: bool,
    /// The program waits in `bz_check_out`: that a copy has not come is no miss of its own.
    is_checking_out: bool,
}

impl Hints {
    /// Nothing was asked for.
    ///
    /// # Errors
    /// The kernel's, when it gives no address space.
    pub fn new() -> sys::Result<Hints> {
        Ok(Hints { asked: KernelTable::new(PLACES)?, is_any: false, is_checking_out: false })
    }

    /// Remembers a block.
    pub fn note(&mut self, block: Block) {
        self.is_any = true;
        self.asked.set(place(block), Asked(block.addr()));
    }

    /// `bz_check_out` begins or ends.
    pub fn check_out(&mut self, begins: bool) {
        self.is_checking_out = begins;
    }

    /// Whether a block that is missed was asked for, since it was missed last.
    #[inline]
    pub fn take(&mut self, block: Block) -> bool {
        self.is_any && !self.is_checking_out && self.take_any(block)
    }

    #[cold]
    fn take_any(&mut self, block: Block) -> bool {
        let was_asked = self.asked.get(place(block)).0 == block.addr();
        if was_asked {
            self.asked.set(place(block), Asked(0));
        }
        was_asked
    }
}

fn place(block: Block) -> u64 {
    (block.addr() >> BLOCK_SHIFT) % PLACES
}
