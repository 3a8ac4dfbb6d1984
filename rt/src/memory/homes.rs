//! Which node is the home of an address, and whose allocator hands it out.
//!
//! Purpose: a static partition of the segment that every node computes alike, without messages ([`Homes`]), and, where pages get their
//! homes by first touch, what a node knows of the distributed page table ([`HomeTable`]). Input: an address of the segment.
//! Output: the [`NodeId`] of its home, the [`ArenaId`] that owns it. Source: Reinhardt 1996, section 2.3 (round-robin and first-touch
//! homes, distributed mapping table).
//!
//! The arenas are those of [`partition`](crate::memory::partition). Pages of the lower half and of pools are dealt out round-robin, those of a pool from its own node on, a zone's other pages belong to
//! its node.
//! Node 0 has the allocators of the lower half, each node those of its zone.
//!
//! With first touch, the node that would be a page's home by turn keeps the page's entry: it makes the first node that asks the home, for
//! ever, and tells everybody else. Nobody has used the page before that, so no data moves.
//!
//! **Invariant**: all blocks of a page have the same home. What is left of the upper half belongs to nobody.

use crate::kernel::own_memory::{KernelTable, Zeroed};
use crate::kernel::sys;
pub use crate::memory::partition::{ArenaId, Attributes, BlockSize, PAGE_BYTES, Partition, Placement};
use blizzard_contract::SEGMENT_BASE;
use blizzard_protocol::ids::{NAMED_NODES, NodeId};
use blizzard_protocol::port::ProtocolId;
use core::cell::Cell;

/// The partition of one run's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homes {
    partition: Partition,
    /// Nodes that can be homes: the part of any other one falls to a lower one.
    present: u64,
}

impl Homes {
    /// The partition of `segment_bytes` bytes over `nodes` nodes. `defaults`: what allocations have that do not choose.
    pub const fn new(nodes: u32, segment_bytes: u64, defaults: Attributes) -> Homes {
        Homes { partition: Partition::new(nodes, segment_bytes, defaults), present: nodes as u64 }
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

    pub const fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The node that does the part of node `number`.
    #[inline]
    fn stand_in(&self, number: u64) -> Option<NodeId> {
        if number >= self.partition.nodes() {
            return None;
        }
        NodeId::new(if number < self.present { number } else { number % self.present } as u32)
    }

    pub const fn nodes(&self) -> u32 {
        self.partition.nodes() as u32
    }

    /// The home of an address; `None` when it belongs to nobody. Where homes are found by first touch: the keeper of the page's entry.
    #[inline]
    pub fn home_of(&self, addr: u64) -> Option<NodeId> {
        let offset = addr.checked_sub(SEGMENT_BASE)?;
        let in_lower_half = offset < self.partition.half_bytes();
        self.stand_in(if in_lower_half {
            self.turn_of(offset / PAGE_BYTES)
        } else {
            let by_turn = || self.turn_of(self.partition.turn_in_pool(offset));
            self.partition.zone_of_pages(offset)?.unwrap_or_else(by_turn)
        })
    }

    /// Names the page of an address, and between how many nodes its home was chosen.
    #[inline]
    const fn key_of(&self, addr: u64) -> u64 {
        const PAGE_BITS: u32 = 64 - PAGE_BYTES.trailing_zeros();
        const { assert!((NAMED_NODES as u64) < 1 << (64 - PAGE_BITS)) };
        (addr / PAGE_BYTES) | (self.present << PAGE_BITS)
    }

    /// Whose turn a page is.
    #[inline]
    fn turn_of(&self, page: u64) -> u64 {
        // A division would be the longest step of a look-up.
        let nodes = self.partition.nodes();
        if nodes.is_power_of_two() { page & (nodes - 1) } else { page % nodes }
    }

    /// The arena of an address; `None` when it belongs to nobody.
    pub fn arena_of(&self, addr: u64) -> Option<ArenaId> {
        self.partition.arena_of(addr)
    }

    /// The arena of allocations with these attributes: in the zone of a node that is no home yet nothing is allocated, but in that of the node that
    /// does its part.
    pub fn arena_for(&self, attributes: Attributes) -> Option<ArenaId> {
        let homes = match attributes.homes {
            Placement::Node(node) => Placement::Node(self.stand_in(node.index() as u64)?),
            policy => policy,
        };
        Some(ArenaId::of(Attributes { homes, ..attributes }))
    }

    /// The arena of a node's small allocations without attributes of their own, if it can be its owner. While node 0 is alone it has none: when homes are dealt out later,
    /// nobody has used a page of it.
    pub fn pool_of(&self, node: NodeId) -> Option<ArenaId> {
        let may_own = self.present > 1 && (node.index() as u64) < self.present;
        may_own.then(|| self.partition.pool_of(node))
    }

    /// The node whose allocator manages an arena.
    pub fn owner_of(&self, arena: ArenaId) -> Option<NodeId> {
        self.stand_in(arena.zone().unwrap_or(0))
    }

    /// First address and bytes of an arena; `None` if this run has no room for it.
    pub fn arena_range(&self, arena: ArenaId) -> Option<(u64, u64)> {
        self.partition.arena_range(arena)
    }

    /// The least GiB of a larger segment in which the arena has room for `bytes` bytes behind `limit`, its first address that was never handed out (0: none
    /// was). `None`: there is no such segment.
    pub fn enough_gib(&self, arena: ArenaId, bytes: u64, limit: u64) -> Option<u64> {
        self.partition.enough_gib(arena, bytes, limit)
    }

    /// How many arenas the run has; their numbers are below.
    pub fn arenas(&self) -> usize {
        ArenaId::count(self.partition.nodes()) as usize
    }

    /// The arena with that number, if the run has it.
    pub fn arena(&self, number: u64) -> Option<ArenaId> {
        ArenaId::new(number, self.partition.nodes())
    }
}

/// Node number + 1; zero is "not known", and at the entry's keeper "none yet".
#[derive(Clone, Copy, Default)]
struct PageHome(u16);

// SAFETY: an integer.
unsafe impl Zeroed for PageHome {}

/// All that an address says, once the home of its page is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    pub home: NodeId,
    pub arena: ArenaId,
    pub block: BlockSize,
    pub protocol: ProtocolId,
}

/// Pages whose places are remembered.
const PLACES: usize = 64;

/// What was looked up of a page.
#[derive(Clone, Copy)]
struct Known {
    /// See [`Homes::key_of`].
    key: u64,
    place: BlockPlace,
}

/// Stands where nothing has been looked up: no page has that key.
const UNKNOWN: Known = Known {
    key: u64::MAX,
    place: BlockPlace {
        home: NodeId::new(0).expect("0 is a node"),
        arena: ArenaId::of(Attributes::PLAIN),
        block: BlockSize::MIN,
        protocol: Attributes::PLAIN.protocol,
    },
};

/// What this node knows of the homes of first-touch pages.
pub struct HomeTable {
    /// Of the lower half; nothing when no home is found by first touch.
    pages: Option<KernelTable<PageHome>>,
    /// The page whose home this node asks for.
    asking: Option<u64>,
    /// By the low bits of the page's number: a miss asks about one page several times. The place of a page never changes.
    places: [Cell<Known>; PLACES],
}

impl HomeTable {
    /// `migrates`: not in a run whose nodes are created, where every page has been used when the homes are dealt out.
    ///
    /// # Errors
    /// The kernel's, when it gives no address space.
    pub fn new(migrates: bool, homes: &Homes) -> sys::Result<HomeTable> {
        let pages = if migrates { Some(KernelTable::new(homes.partition.half_bytes() / PAGE_BYTES)?) } else { None };
        Ok(HomeTable { pages, asking: None, places: [const { Cell::new(UNKNOWN) }; PLACES] })
    }

    /// The place of an address; `None` when it belongs to nobody, or this node does not know its home.
    #[inline(always)]
    pub fn place(&self, homes: &Homes, addr: u64) -> Option<BlockPlace> {
        let key = homes.key_of(addr);
        let known = self.places[key as usize % PLACES].get();
        if known.key == key { Some(known.place) } else { self.look_up(homes, addr) }
    }

    #[inline(never)]
    fn look_up(&self, homes: &Homes, addr: u64) -> Option<BlockPlace> {
        let home = self.home_of(homes, addr)?;
        let arena = homes.arena_of(addr)?;
        let place = BlockPlace { home, arena, block: arena.block(), protocol: arena.protocol() };
        let key = homes.key_of(addr);
        self.places[key as usize % PLACES].set(Known { key, place });
        Some(place)
    }

    /// The home of an address; `None` when it belongs to nobody, or this node does not know.
    #[inline]
    pub fn home_of(&self, homes: &Homes, addr: u64) -> Option<NodeId> {
        match self.entry(homes, addr) {
            None => homes.home_of(addr),
            Some((pages, number)) => NodeId::new(u32::from(pages.get(number).0).checked_sub(1)?),
        }
    }

    /// Whether this node does not know the home of an address. Cheaper than to ask for it: most pages have theirs by rule.
    #[inline]
    pub fn is_unknown(&self, homes: &Homes, addr: u64) -> bool {
        self.entry(homes, addr).is_some_and(|(pages, number)| pages.get(number).0 == 0)
    }

    /// The table and the number of the page, if its home is found by first touch.
    #[inline]
    fn entry(&self, homes: &Homes, addr: u64) -> Option<(&KernelTable<PageHome>, u64)> {
        let partition = &homes.partition;
        let offset = addr.checked_sub(SEGMENT_BASE).filter(|offset| *offset < partition.half_bytes())?;
        self.pages.as_ref().filter(|_| partition.is_first_touch(offset)).map(|pages| (pages, offset / PAGE_BYTES))
    }

    /// Whether the home of the page is found by first touch.
    pub fn is_first_touch(&self, homes: &Homes, addr: u64) -> bool {
        self.entry(homes, addr).is_some()
    }

    /// Notes a home, for ever.
    pub fn learn(&mut self, addr: u64, home: NodeId) {
        if let Some(pages) = &mut self.pages {
            pages.set((addr - SEGMENT_BASE) / PAGE_BYTES, PageHome(home.index() as u16 + 1));
        }
    }

    /// Whether pages of some arenas have homes of their own, not by turn.
    pub fn migrates(&self) -> bool {
        self.pages.is_some()
    }

    /// Notes the homes of whole pages that lie on `nodes` nodes in slices; how many are `me`'s. `None` if one has another home: it has been used already.
    pub fn learn_slices(&mut self, (addr, bytes): (u64, u64), nodes: u32, me: NodeId) -> Option<u64> {
        let pages = self.pages.as_mut()?;
        let (first, count) = ((addr - SEGMENT_BASE) / PAGE_BYTES, bytes / PAGE_BYTES);
        let begin = |node: u32| first + count * u64::from(node) / u64::from(nodes);
        let homes =
            || (0..nodes).flat_map(|node| (begin(node)..begin(node + 1)).map(move |page| (page, node as u16 + 1)));
        if homes().any(|(page, home)| ![0, home].contains(&pages.get(page).0)) {
            return None;
        }
        homes().for_each(|(page, home)| pages.set(page, PageHome(home)));
        let own = me.index() as u32;
        Some(begin(own + 1) - begin(own))
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

    const PLAIN: Attributes = Attributes::PLAIN;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn the_first_half_is_dealt_out_page_by_page() {
        let homes = Homes::new(3, 64 << 20, PLAIN);
        for page in 0..100 {
            for inside in [0, 64, 4095] {
                let addr = SEGMENT_BASE + page * PAGE_BYTES + inside;
                assert_eq!(homes.home_of(addr), Some(node((page % 3) as u32)));
                assert_eq!(homes.arena_of(addr), homes.arena_for(PLAIN));
            }
        }
    }

    #[test]
    fn zones_belong_to_their_nodes() {
        for nodes in [1, 2, 3, 7, 64] {
            let homes = Homes::new(nodes, 256 << 20, PLAIN);
            for number in 0.. {
                let Some(arena) = homes.arena(number) else { break };
                let Some((base, bytes)) = homes.arena_range(arena) else { continue };
                let owner = homes.owner_of(arena).unwrap();
                assert_eq!(owner.index() as u64, arena.zone().unwrap_or(0));
                if arena.is_pool() {
                    // It begins with its node.
                    let by_turn = |page| homes.turn_of(owner.index() as u64 + page) as u32;
                    for page in 0..bytes / PAGE_BYTES {
                        assert_eq!(homes.home_of(base + page * PAGE_BYTES), Some(node(by_turn(page))));
                    }
                    assert_eq!(homes.pool_of(owner), (nodes > 1).then_some(arena));
                } else if arena.zone().is_some() {
                    assert_eq!(homes.home_of(base), Some(owner));
                    assert_eq!(homes.home_of(base + bytes - 1), Some(owner));
                }
            }
        }
    }

    #[test]
    fn with_first_touch_a_pool_belongs_to_its_node() {
        let homes = Homes::new(3, 64 << 20, Attributes { homes: Placement::FirstTouch, ..PLAIN });
        let (base, bytes) = homes.arena_range(homes.pool_of(node(2)).unwrap()).unwrap();
        assert!((base..base + bytes).step_by(PAGE_BYTES as usize).all(|page| homes.home_of(page) == Some(node(2))));
    }

    #[test]
    fn who_is_no_home_has_no_pool() {
        let homes = Homes::new(4, 64 << 20, PLAIN);
        assert_eq!([0, 1].map(|number| homes.among(1).pool_of(node(number))), [None; 2]);
        assert_eq!([1, 2].map(|number| homes.among(2).pool_of(node(number)).is_some()), [true, false]);
    }

    /// An allocation in the zone of a node that had not been created was a request that nobody answered.
    #[test]
    fn the_zone_of_an_absent_node_is_that_of_its_stand_in() {
        let homes = Homes::new(4, 64 << 20, PLAIN).among(1);
        let arena = homes.arena_for(Attributes { homes: Placement::Node(node(3)), ..PLAIN }).unwrap();
        assert_eq!((arena.zone(), homes.owner_of(arena)), (Some(0), Some(node(0))));
        assert_eq!(homes.arena_for(Attributes { homes: Placement::Node(node(4)), ..PLAIN }), None);
    }

    #[test]
    fn only_first_touch_arenas_have_unknown_homes() {
        let homes = Homes::new(2, 64 << 20, PLAIN);
        let touched = Attributes { homes: Placement::FirstTouch, ..PLAIN };
        let at = |attributes| homes.arena_range(homes.arena_for(attributes).unwrap()).unwrap().0;
        let mut table = HomeTable::new(true, &homes).unwrap();
        assert!(table.is_first_touch(&homes, at(touched)) && !table.is_first_touch(&homes, at(PLAIN)));
        assert_eq!(table.home_of(&homes, at(touched)), None);
        assert_eq!(table.home_of(&homes, at(PLAIN)), Some(node(0)));
        table.learn(at(touched), node(1));
        assert_eq!(table.home_of(&homes, at(touched) + 100), Some(node(1)));
        // Created nodes: pages have their homes by turn.
        let table = HomeTable::new(false, &homes).unwrap();
        assert!(!table.is_first_touch(&homes, at(touched)) && table.home_of(&homes, at(touched)).is_some());
    }

    /// What is remembered says what a look-up says, also of a page that is looked up again when more nodes can be homes.
    #[test]
    fn remembered_places_are_right() {
        let all = Homes::new(4, 64 << 20, PLAIN);
        let mut table = HomeTable::new(true, &all).unwrap();
        let mut random = 11u64;
        for n in 0..50_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let homes = if n % 7 == 0 { all.among(1 + (random % 4) as u32) } else { all };
            let addr = (SEGMENT_BASE + (random >> 20) % (65 << 20)) & !63;
            if homes.arena_of(addr).is_some() && table.is_unknown(&homes, addr) {
                assert_eq!(table.place(&homes, addr), None);
                table.learn(addr, node((random >> 8) as u32 % 4));
            }
            let expected = table.home_of(&homes, addr).zip(homes.arena_of(addr));
            let expected = expected.map(|(home, arena)| BlockPlace {
                home,
                arena,
                block: arena.block(),
                protocol: arena.protocol(),
            });
            assert_eq!((table.place(&homes, addr), table.place(&homes, addr)), (expected, expected));
        }
        assert_eq!(table.place(&all, u64::MAX), None);
    }

    #[test]
    fn addresses_outside_belong_to_nobody() {
        let homes = Homes::new(2, 1 << 20, PLAIN);
        for addr in [0, SEGMENT_BASE - 1, SEGMENT_BASE + (1 << 20), u64::MAX] {
            assert_eq!(homes.home_of(addr), None);
            assert_eq!(homes.arena_of(addr), None);
        }
        assert_eq!(Homes::new(4, 4096, PLAIN).home_of(SEGMENT_BASE), None);
    }
}
