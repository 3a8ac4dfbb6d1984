//! The pages of other homes of which this node has copies, in the order in which they go.
//!
//! Input: pages that are used. Output: which one goes next. Source: Reinhardt 1996, section 2.3 (page replacement).

use crate::ids::{Block, PAGE_BYTES};
use crate::storage::{Queue, Storage, Table, Zeroed};
use blizzard_contract::SEGMENT_BASE;

/// The page holds copies.
pub(crate) const RESIDENT: u8 = 1;
/// It has missed again since its last turn.
pub(crate) const USED: u8 = 2;

/// State of a page: zero is "no copies".
#[derive(Clone, Copy, Default)]
pub(crate) struct PageState(pub(crate) u8);

// SAFETY: an integer.
unsafe impl Zeroed for PageState {}

/// The pages of other homes that this node has copies of.
pub struct Pages<M: Storage> {
    /// Most pages; 0: no limit, and nothing is noted.
    pub(crate) limit: u64,
    pub(crate) states: M::Table<PageState>,
    /// Numbers of the resident pages, the next to be replaced first.
    pub(crate) order: Queue<u64, M>,
}

impl<M: Storage> Pages<M> {
    /// # Errors
    /// There is no memory.
    pub fn new(limit: u32, segment_bytes: u64) -> Result<Pages<M>, M::Error> {
        let pages = if limit == 0 { 0 } else { segment_bytes / PAGE_BYTES };
        Ok(Pages { limit: limit.into(), states: M::table(pages)?, order: Queue::new() })
    }

    /// Whether there are, or may be, copies of the block's page.
    pub(crate) fn keeps(&self, block: Block) -> bool {
        self.limit == 0 || self.states.get(page_number(block)).0 != 0
    }

    /// Whether copies of the block's page can be kept without giving another page back.
    pub(crate) fn has_room_for(&self, block: Block) -> bool {
        self.limit == 0 || self.order.len() < self.limit || self.states.get(page_number(block)).0 != 0
    }
}

/// Address of a page.
pub(crate) const fn page_address(number: u64) -> u64 {
    SEGMENT_BASE + number * PAGE_BYTES
}

pub(crate) const fn page_number(block: Block) -> u64 {
    (block.addr() - SEGMENT_BASE) / PAGE_BYTES
}
