//! The finite stache: copies of other nodes' pages, and what the program says about their use.
//!
//! Purpose: a node keeps copies from at most [`Pages::limit`] pages of other homes. A miss on one more page makes room: the oldest page that has not
//! missed again since its last turn gives its blocks back, modified ones with their data, and its memory to the kernel. The same
//! eviction of blocks serves check-in; prefetch and check-out acquire blocks before they are needed. Input: misses and hints.
//! Output: events of the protocol's driver. Source: Reinhardt 1996, section 2.3 (page replacement); Hill et al., Cooperative Shared Memory,
//! 1993 (check-in, check-out).
//!
//! **Invariants**
//! * Nothing of a page that the access in progress uses is evicted, nor a block with an outstanding request. If every page is in
//!   use, the node keeps more pages than the limit, and counts it.
//! * Hints never change results: each is a sequence of steps that any node may take at any time.

use super::Kind;
use crate::buffer::{Queue, Table, Zeroed};
use crate::homes::PAGE_BYTES;
use crate::node::Node;
use crate::protocol::Tag;
use crate::sys;
use crate::tags::Block;
use blizzard_contract::{Counter, SEGMENT_BASE};

/// The page holds copies.
const RESIDENT: u8 = 1;
/// It has missed again since its last turn.
const USED: u8 = 2;

/// State of a page: zero is "no copies".
#[derive(Clone, Copy, Default)]
struct PageState(u8);

// SAFETY: an integer.
unsafe impl Zeroed for PageState {}

/// What became of a request that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Yes,
    /// The block is here, in use, or cannot be had this way.
    NotNeeded,
    /// As many requests are outstanding as may be.
    TooMany,
}

/// The pages of other homes that this node has copies of.
pub struct Pages {
    /// Most pages; 0: no limit, and nothing is noted.
    limit: u64,
    states: Table<PageState>,
    /// Numbers of the resident pages, the next to be replaced first.
    order: Queue<u64>,
    /// A system call is being prepared: all its memory is needed at once, however much it is.
    holding: bool,
}

impl Pages {
    /// # Errors
    /// The kernel's, when it gives no address space.
    pub fn new(limit: u32, segment_bytes: u64) -> sys::Result<Pages> {
        let pages = if limit == 0 { 0 } else { segment_bytes / PAGE_BYTES };
        Ok(Pages { limit: limit.into(), states: Table::new(pages)?, order: Queue::new(), holding: false })
    }
}

/// Address of a page.
const fn page_address(number: u64) -> u64 {
    SEGMENT_BASE + number * PAGE_BYTES
}

impl Node {
    /// A block is about to be acquired, or its page was acquired before its home existed: makes room for its page if it has another home.
    #[inline]
    pub fn note_page(&mut self, block: Block) {
        if self.coherence.pages.limit != 0 && self.home_of(block) != self.me {
            self.make_room_for_page_of(block);
        }
    }

    /// Stops replacement while the memory of a system call is acquired, range by range.
    pub fn hold_pages(&mut self, hold: bool) {
        self.coherence.pages.holding = hold && !has_bug!(self, HoldsNoPages);
    }

    #[inline(never)]
    fn make_room_for_page_of(&mut self, block: Block) {
        let number = (block.addr() - SEGMENT_BASE) / PAGE_BYTES;
        let PageState(state) = self.coherence.pages.states.get(number);
        self.coherence.pages.states.set(number, PageState(RESIDENT | if state == 0 { 0 } else { USED }));
        if state != 0 {
            return;
        }
        // More than one when earlier ones were in use at their turn.
        while self.coherence.pages.order.len() >= self.coherence.pages.limit {
            if self.coherence.pages.holding || !self.replace_page() {
                self.count(Counter::StacheOverruns);
                break;
            }
        }
        if self.coherence.pages.order.push(number).is_err() {
            self.fail(format_args!("no memory for the list of copied pages"));
        }
    }

    /// Gives the oldest page back that can be; false when none can.
    fn replace_page(&mut self) -> bool {
        // Each page has at most two turns: one to lose its mark, one to go.
        for _ in 0..2 * self.coherence.pages.order.len() {
            let Some(number) = self.coherence.pages.order.pop() else { return false };
            let pages = &mut self.coherence.pages;
            let PageState(state) = pages.states.get(number);
            let goes = if state & USED != 0 {
                pages.states.set(number, PageState(RESIDENT));
                false
            } else {
                self.evict_page(page_address(number))
            };
            if goes {
                self.coherence.pages.states.set(number, PageState(0));
                self.count(Counter::PagesReplaced);
                return true;
            }
            if self.coherence.pages.order.push(number).is_err() {
                self.fail(format_args!("no memory for the list of copied pages"));
            }
        }
        false
    }

    /// Evicts all blocks of a page; false, and the page stays, when one is in use.
    fn evict_page(&mut self, page: u64) -> bool {
        let unit = self.space.block_bytes(page) as usize;
        let blocks = || (page..page + PAGE_BYTES).step_by(unit).map(Block::of);
        if blocks().any(|block| self.is_in_use(block)) {
            return false;
        }
        let evicted = if has_bug!(self, EvictsFirstBlockOnly) { 1 } else { usize::MAX };
        for block in blocks().take(evicted) {
            self.evict(block);
        }
        // Every block is Invalid now: nobody reads what the kernel takes.
        self.space.discard(page, PAGE_BYTES);
        true
    }

    /// Whether the access in progress, a message put aside or an outstanding request is about the block.
    fn is_in_use(&self, block: Block) -> bool {
        if has_bug!(self, ReplacesWhatIsUsed) {
            return self.space.tag(block) == Some(Tag::Busy);
        }
        let outstanding = match self.coherence.kind {
            Kind::Stache => false,
            Kind::Mcm => self.mcm_is_outstanding(block),
        };
        outstanding
            || self.space.tag(block) == Some(Tag::Busy)
            || self.coherence.acquiring == Some(block)
            || self.coherence.is_pinned(block)
            || self.coherence.is_held(&self.space, block)
    }

    /// Gives a copy back. The block is in another home's page and not in use.
    fn evict(&mut self, block: Block) {
        if !matches!(self.tag_of(block), Tag::ReadOnly | Tag::Writable) {
            return;
        }
        self.count(Counter::BlocksEvicted);
        if has_bug!(self, EvictsWithoutData) {
            return self.space.set_tag(block, Tag::Invalid);
        }
        match self.coherence.kind {
            Kind::Stache => self.stache_evict(block),
            Kind::Mcm => self.mcm_evict(block),
        }
    }

    /// Calls `each` with the blocks of a range of shared memory that have been handed out. The range may be much larger than what is shared of it.
    fn each_shared_block(&mut self, addr: u64, bytes: u64, mut each: impl FnMut(&mut Node, Block)) {
        let first = addr.max(SEGMENT_BASE);
        let end = addr.saturating_add(bytes).min(SEGMENT_BASE + self.space.bytes());
        if first >= end {
            return;
        }
        let mut next = Some(self.space.block_of(first));
        while let Some(block) = next.filter(|block| block.addr() < end) {
            if self.is_handed_out(block, true) {
                each(self, block);
                next = self.space.after(block);
            } else {
                // So is the rest of its arena.
                let arena = self.homes.arena_of(block.addr()).and_then(|arena| self.homes.arena_range(arena));
                let skipped = arena.map_or((block.addr() | (PAGE_BYTES - 1)) + 1, |(base, bytes)| base + bytes);
                next = Some(self.space.block_of(skipped));
            }
        }
    }

    /// Asks for blocks without waiting for them, as long as requests may be outstanding.
    pub fn prefetch(&mut self, addr: u64, bytes: u64, store: bool) {
        self.each_shared_block(addr, bytes, |node, block| node.prefetch_block(block, store));
    }

    fn prefetch_block(&mut self, block: Block, store: bool) {
        if self.ask_block(block, store, true) == Asked::Yes {
            self.count(Counter::Prefetches);
        }
    }

    /// Asks for a block, if it makes sense and one more request may be outstanding. `makes_room`: also if another page has to go.
    pub(super) fn ask_block(&mut self, block: Block, store: bool, makes_room: bool) -> Asked {
        // Of a page that nobody has used there is nothing to fetch.
        let Some(home) = self.home_table.home_of(&self.homes, block.addr()) else { return Asked::NotNeeded };
        if self.space.allows(block, store) || self.is_in_use(block) {
            return Asked::NotNeeded;
        }
        let own = home == self.me;
        let (is_useful, may_ask) = match self.coherence.kind {
            Kind::Stache => (!own || self.stache_is_away(block), self.stache_may_prefetch()),
            // This protocol knows no request of the home's own program that nobody waits for.
            Kind::Mcm => (!own, self.mcm_may_prefetch()),
        };
        if !is_useful || !(own || makes_room || self.has_room_for_page_of(block)) {
            return Asked::NotNeeded;
        }
        if !may_ask {
            return Asked::TooMany;
        }
        self.note_page(block);
        match self.coherence.kind {
            Kind::Stache => self.stache_prefetch(block, store, own),
            Kind::Mcm => self.mcm_prefetch(block, store),
        }
        Asked::Yes
    }

    /// Whether copies of the block's page can be kept without giving another page back.
    fn has_room_for_page_of(&self, block: Block) -> bool {
        let Pages { limit, states, order, .. } = &self.coherence.pages;
        *limit == 0 || order.len() < *limit || states.get((block.addr() - SEGMENT_BASE) / PAGE_BYTES).0 != 0
    }

    /// Acquires blocks, many at a time; returns when each has been here.
    pub fn check_out(&mut self, addr: u64, bytes: u64, store: bool) {
        let end = addr.saturating_add(bytes);
        self.prefetch(addr, bytes, store);
        self.each_shared_block(addr, bytes, |node, block| {
            node.end_last_access();
            // The requests that were answered make room for those that are to come.
            let unit = node.space.block_bytes(block.addr());
            let ahead = block.addr() + unit;
            let window = (super::stache::PREFETCHES as u64 * unit).min(end.saturating_sub(ahead));
            if !node.space.allows(block, store) {
                node.prefetch(ahead, window, store);
            }
            node.access(block.addr(), 1, store, true);
        });
        self.end_last_access();
    }

    /// Gives the copies of a range back to their homes.
    pub fn check_in(&mut self, addr: u64, bytes: u64) {
        self.each_shared_block(addr, bytes, |node, block| {
            let home = node.home_table.home_of(&node.homes, block.addr());
            if home.is_some_and(|home| home != node.me) && !node.is_in_use(block) {
                node.evict(block);
            }
        });
    }
}
