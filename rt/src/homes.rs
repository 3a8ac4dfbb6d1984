//! Which node is the home of an address, and which allocator hands it out.
//!
//! Purpose: a static partition of the segment that every node computes alike, without messages ([`Homes`]), and, when pages get their
//! homes by first touch, what a node knows of the distributed page table ([`HomeTable`]). Input: an address of the segment.
//! Output: the [`NodeId`] of its home, the [`ArenaId`] that owns it. Source: Reinhardt 1996, section 2.3 (round-robin and first-touch
//! homes, distributed mapping table).
//!
//! ```text
//! SEGMENT_BASE                      + half                                                       + bytes
//! | pages round-robin over the nodes | zone of node 0 | zone of node 1 | ... | zone of node n-1 | rest |
//! | arena 0, allocator on node 0     | arena 1        | arena 2        |     | arena n          | none |
//! ```
//!
//! With first touch, the node that would be a page's home by turn keeps the page's entry: it makes the first node that asks the home, for
//! ever, and tells everybody else. Nobody has used the page before that, so no data moves.
//!
//! **Invariant**: all blocks of a page have the same home. The rest (less than a page per node) belongs to nobody.

use crate::abi::{MAX_NODES, SEGMENT_BASE};
use crate::buffer::{Table, Zeroed};
use crate::protocol::NodeId;
use crate::sys;

/// Bytes of the pages that are dealt out.
pub const PAGE_BYTES: u64 = 4096;
/// Most arenas of a run: the interleaved one and a zone for each node.
pub const MAX_ARENAS: usize = MAX_NODES + 1;

/// Number of an arena: 0 the interleaved half, `n + 1` the zone of node `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaId(u8);

impl ArenaId {
    pub const INTERLEAVED: ArenaId = ArenaId(0);

    pub const fn zone_of(node: NodeId) -> ArenaId {
        ArenaId(node.index() as u8 + 1)
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The partition of one run's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homes {
    nodes: u64,
    /// Nodes that can be homes: the part of any other one falls to a lower one.
    present: u64,
    half_bytes: u64,
    zone_bytes: u64,
}

impl Homes {
    /// The partition of `segment_bytes` bytes over `nodes` nodes.
    pub const fn new(nodes: u32, segment_bytes: u64) -> Homes {
        let nodes = nodes as u64;
        let half_bytes = segment_bytes / 2 / PAGE_BYTES * PAGE_BYTES;
        Homes { nodes, present: nodes, half_bytes, zone_bytes: half_bytes / nodes / PAGE_BYTES * PAGE_BYTES }
    }

    /// The same partition while only nodes below `present` (1 to the number of nodes) can be homes.
    #[must_use]
    pub const fn among(self, present: u32) -> Homes {
        Homes { present: present as u64, ..self }
    }

    /// How many nodes can be homes.
    pub const fn present(&self) -> u32 {
        self.present as u32
    }

    /// The node that does the part of node `number`.
    fn stand_in(&self, number: u64) -> Option<NodeId> {
        if number >= self.nodes {
            return None;
        }
        NodeId::new(if number < self.present { number } else { number % self.present } as u32)
    }

    pub const fn nodes(&self) -> u32 {
        self.nodes as u32
    }

    /// The home of an address; `None` when it belongs to nobody.
    pub fn home_of(&self, addr: u64) -> Option<NodeId> {
        let offset = addr.checked_sub(SEGMENT_BASE)?;
        self.stand_in(if offset < self.half_bytes { self.turn_of(offset / PAGE_BYTES) } else { self.zone_at(offset)? })
    }

    /// Whose turn a page is.
    #[inline]
    fn turn_of(&self, page: u64) -> u64 {
        // A division would be the longest step of a look-up.
        if self.nodes.is_power_of_two() { page & (self.nodes - 1) } else { page % self.nodes }
    }

    /// The number of the zone that holds an offset of the upper half.
    fn zone_at(&self, offset: u64) -> Option<u64> {
        // Too small a segment has zones of no bytes.
        (offset - self.half_bytes).checked_div(self.zone_bytes).filter(|zone| *zone < self.nodes)
    }

    /// The arena of an address; `None` when it belongs to nobody.
    pub fn arena_of(&self, addr: u64) -> Option<ArenaId> {
        let offset = addr.checked_sub(SEGMENT_BASE)?;
        if offset < self.half_bytes { Some(ArenaId::INTERLEAVED) } else { self.arena(self.zone_at(offset)? + 1) }
    }

    /// The node whose allocator manages an arena.
    pub fn owner_of(&self, arena: ArenaId) -> Option<NodeId> {
        self.stand_in(u64::from(arena.0).saturating_sub(1))
    }

    /// First address and bytes of an arena.
    pub fn arena_range(&self, arena: ArenaId) -> (u64, u64) {
        match arena.0 {
            0 => (SEGMENT_BASE, self.half_bytes),
            n => (SEGMENT_BASE + self.half_bytes + (u64::from(n) - 1) * self.zone_bytes, self.zone_bytes),
        }
    }

    /// The arena with that number, if the run has it.
    pub fn arena(&self, number: u64) -> Option<ArenaId> {
        if number <= self.nodes { Some(ArenaId(number as u8)) } else { None }
    }
}

/// Node number + 1; zero is "not known", and at the entry's keeper "none yet".
#[derive(Clone, Copy, Default)]
struct PageHome(u8);

// SAFETY: an integer.
unsafe impl Zeroed for PageHome {}

/// What this node knows of the homes of first-touch pages.
pub struct HomeTable {
    /// Empty unless homes are found by first touch.
    pages: Option<Table<PageHome>>,
    /// The page whose home this node asks for.
    asking: Option<u64>,
}

impl HomeTable {
    /// # Errors
    /// The kernel's, when it gives no address space.
    pub fn new(first_touch: bool, homes: &Homes) -> sys::Result<HomeTable> {
        let pages = if first_touch { Some(Table::new(homes.half_bytes / PAGE_BYTES)?) } else { None };
        Ok(HomeTable { pages, asking: None })
    }

    /// The home of an address; `None` when it belongs to nobody, or this node does not know.
    pub fn home_of(&self, homes: &Homes, addr: u64) -> Option<NodeId> {
        match self.entry(homes, addr) {
            None => homes.home_of(addr),
            Some((pages, number)) => NodeId::new(u32::from(pages.get(number).0).checked_sub(1)?),
        }
    }

    /// The table and the number of the page, if its home is found by first touch.
    fn entry(&self, homes: &Homes, addr: u64) -> Option<(&Table<PageHome>, u64)> {
        let offset = addr.checked_sub(SEGMENT_BASE).filter(|offset| *offset < homes.half_bytes)?;
        self.pages.as_ref().map(|pages| (pages, offset / PAGE_BYTES))
    }

    /// Whether the home of the page is found by first touch.
    pub fn is_first_touch(&self, homes: &Homes, addr: u64) -> bool {
        self.entry(homes, addr).is_some()
    }

    /// Notes a home, for ever.
    pub fn learn(&mut self, addr: u64, home: NodeId) {
        if let Some(pages) = &mut self.pages {
            pages.set((addr - SEGMENT_BASE) / PAGE_BYTES, PageHome(home.index() as u8 + 1));
        }
    }

    /// Notes the page that this node asks about; `None` when it has the answer.
    pub fn set_asking(&mut self, addr: Option<u64>) {
        self.asking = addr.map(|addr| addr / PAGE_BYTES);
    }

    /// Whether this node asks for the home of the page that holds `addr`. It may be the answer itself, and others may know before it.
    pub fn is_asking(&self, addr: u64) -> bool {
        self.asking == Some(addr / PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn the_first_half_is_dealt_out_page_by_page() {
        let homes = Homes::new(3, 64 << 20);
        for page in 0..100 {
            for inside in [0, 64, 4095] {
                let addr = SEGMENT_BASE + page * PAGE_BYTES + inside;
                assert_eq!(homes.home_of(addr), Some(node((page % 3) as u32)));
                assert_eq!(homes.arena_of(addr), Some(ArenaId::INTERLEAVED));
            }
        }
    }

    #[test]
    fn every_arena_covers_exactly_the_addresses_that_name_it() {
        for nodes in [1, 2, 3, 4, 7, 8, 31, 32, 63, 64] {
            let bytes = 64 << 20;
            let homes = Homes::new(nodes, bytes);
            let mut end = SEGMENT_BASE;
            for number in 0..=u64::from(nodes) {
                let arena = homes.arena(number).unwrap();
                let (base, len) = homes.arena_range(arena);
                assert_eq!(base, end);
                assert!(len > 0 && len.is_multiple_of(PAGE_BYTES));
                end = base + len;
                for addr in [base, base + len - 1] {
                    assert_eq!(homes.arena_of(addr), Some(arena));
                }
                let owner = homes.owner_of(arena).unwrap();
                assert_eq!(owner, node(if number == 0 { 0 } else { number as u32 - 1 }));
                if number > 0 {
                    assert_eq!(homes.home_of(base), Some(owner));
                    assert_eq!(homes.home_of(base + len - 1), Some(owner));
                }
            }
            assert!(end <= SEGMENT_BASE + bytes && SEGMENT_BASE + bytes - end < PAGE_BYTES * u64::from(nodes + 1));
            assert_eq!(homes.home_of(end), None);
            assert_eq!(homes.arena_of(end), None);
            assert_eq!(homes.arena(u64::from(nodes) + 1), None);
        }
    }

    #[test]
    fn addresses_outside_belong_to_nobody() {
        let homes = Homes::new(2, 1 << 20);
        for addr in [0, SEGMENT_BASE - 1, SEGMENT_BASE + (1 << 20), u64::MAX] {
            assert_eq!(homes.home_of(addr), None);
            assert_eq!(homes.arena_of(addr), None);
        }
        assert_eq!(Homes::new(4, 4096).home_of(SEGMENT_BASE), None);
    }
}
