//! The access in progress: which blocks it has got, and which it waits for.
//!
//! Input: the blocks of an access, and of the grants that arrive. Output: whether all of them are here, and which must not be taken away now.
//!
//! **Invariant**: a block that was found or made accessible for the access in progress is *pinned* until the next entry into the runtime.

use crate::ids::Block;

/// Most blocks of a gather or scatter, or of a group of checks: 16 lanes, each of which may straddle two blocks.
pub const LANE_BLOCKS: usize = 32;

/// The blocks of the access in progress.
pub struct Pins {
    /// The block being acquired, and whether it has been granted: from then on it is pinned.
    acquiring: Option<Block>,
    granted: bool,
    /// Contiguous accesses: all blocks with `first <= block < end`.
    first: u64,
    end: u64,
    /// Gathers, scatters, groups of checks.
    list: [u64; LANE_BLOCKS],
    listed: usize,
    /// A system call is being prepared: all its memory is needed at once, range by range.
    collects: bool,
}

impl Pins {
    pub(crate) const NONE: Pins =
        Pins { acquiring: None, granted: false, first: 0, end: 0, list: [0; LANE_BLOCKS], listed: 0, collects: false };

    #[inline]
    pub fn contains(&self, block: Block) -> bool {
        let addr = block.addr();
        (self.first <= addr && addr < self.end)
            || self.list[..self.listed].contains(&addr)
            || (self.granted && self.acquiring == Some(block))
    }

    /// Forgets the access before.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.first, self.end, self.listed) = (0, 0, 0);
    }

    /// A contiguous access begins at that block.
    pub fn begin_range(&mut self, first: Block) {
        self.first = first.addr();
    }

    /// The contiguous access has got all blocks up to that one.
    pub fn extend_range(&mut self, to: Block) {
        self.end = to.addr() + 1;
        self.release();
    }

    /// The access has got that block; it has at most [`LANE_BLOCKS`].
    pub fn add(&mut self, block: Block) {
        self.list[self.listed] = block.addr();
        self.listed += 1;
        self.release();
    }

    /// The access waits for that block.
    pub(crate) fn acquire(&mut self, block: Block) {
        (self.acquiring, self.granted) = (Some(block), false);
    }

    /// It waits for none.
    pub(crate) fn release(&mut self) {
        (self.acquiring, self.granted) = (None, false);
    }

    /// Whether pages are to stay: the memory of a system call is needed at once, and comes range by range.
    pub fn collects(&self) -> bool {
        self.collects
    }

    pub(crate) fn set_collects(&mut self, collects: bool) {
        self.collects = collects;
    }

    pub fn is_acquiring(&self, block: Block) -> bool {
        self.acquiring == Some(block)
    }

    /// The block allows the access in progress, if that is what it waits for.
    #[inline]
    pub(crate) fn grant(&mut self, block: Block) {
        if self.acquiring == Some(block) {
            self.granted = true;
        }
    }

    /// Whether the block that the access waits for has been granted.
    #[inline]
    pub fn is_granted(&self) -> bool {
        self.granted
    }

    /// Of [`crate::bugs::Bug::AheadIsGranted`].
    pub(crate) fn grant_any(&mut self) {
        self.granted = true;
    }
}
