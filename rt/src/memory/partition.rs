//! How the segment is cut into arenas, so that an address alone says protocol, block size and homes.
//!
//! Purpose: allocations choose a protocol, how many bytes change hands together, and where their pages have their homes; every node must know all of any
//! address, in handlers too, which cannot ask. So each combination has an arena, a range of addresses of its own, and all
//! nodes compute the same ranges from the run's header. Input: sizes and addresses. Output: [`ArenaId`], [`BlockSize`].
//! Source: Reinhardt 1996, section 2.3 (blocks of a size that the allocation chooses, homes by policy).
//!
//! ```text
//! SEGMENT_BASE                                            + half
//! | the run's own arena                    | a slice for each other | zone of node 0 | zone of node 1 | ...
//! | its protocol, its block size, its policy | 1/LOWER_SLICES or less |
//!                                               zone: | the run's own | slices, 1/ZONE_SLICES or less each | pool, a quarter |
//! ```
//!
//! A zone's pool is for the node's small allocations with the run's own attributes: who allocates asks nobody. Its pages have their homes by turn, as those of the
//! lower half; where homes are found by first touch, at the zone's node, which is likely to be the first.
//!
//! **Invariants**: arenas begin and end at page borders, so a page has one block size; slices and zones are powers of two, so a look-up divides
//! nothing. A segment too small for slices of a page has none.

use blizzard_contract::{BLOCK_BYTES, BLOCK_MAX_BYTES, BLOCK_SHIFT, BLOCK_SIZES, SEGMENT_BASE, SEGMENT_MAX_BYTES};
use blizzard_protocol::ids::{NAMED_NODES, NodeId};
use blizzard_protocol::list::COUNT;
use blizzard_protocol::operation::Operation;
use blizzard_protocol::port::ProtocolId;

/// Bytes of the pages that are dealt out.
pub const PAGE_BYTES: u64 = 4096;
/// Arenas of the lower half: for each protocol by turn and by first touch.
pub const LOWER: usize = COUNT * 2 * BLOCK_SIZES;
/// Arenas of a node's zone whose pages have their homes there.
const AT_HOME: usize = COUNT * BLOCK_SIZES;
/// Arenas of a node's zone: those, then pools, of which a run has the one with its own attributes.
pub const IN_ZONE: usize = 2 * AT_HOME;
/// What a reserved slice has at most: a part of the half, or of a zone. All of them together are less than half of it.
const LOWER_SLICES: u64 = (2 * LOWER as u64).next_power_of_two();
/// The same of a zone, where they are three eighths at most.
const ZONE_SLICES: u64 = ((AT_HOME as u64 - 1) * 8 / 3).next_power_of_two();
/// Slices of a zone's pool: a quarter.
const POOL_SLICES: usize = ZONE_SLICES as usize / 4;
/// Slices of a zone.
const IN_SLICES: usize = POOL_SLICES + AT_HOME - 1;
// The arenas of the lower half, and of a zone, have numbers of a byte.
const _: () = assert!(LOWER <= blizzard_contract::LOWER_ARENAS && LOWER <= 256 && IN_ZONE <= 256);
const _: () = assert!(LOWER + NAMED_NODES * IN_ZONE <= u32::MAX as usize);

/// Bytes that change hands together: a power of two from [`BLOCK_BYTES`] to [`BLOCK_MAX_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize(u8);

impl BlockSize {
    pub const MIN: BlockSize = BlockSize(BLOCK_SHIFT as u8);

    /// `None` for any other number.
    pub const fn new(bytes: u64) -> Option<BlockSize> {
        if bytes.is_power_of_two() && bytes >= BLOCK_BYTES && bytes <= BLOCK_MAX_BYTES {
            Some(BlockSize(bytes.ilog2() as u8))
        } else {
            None
        }
    }

    pub const fn bytes(self) -> u64 {
        1 << self.0
    }

    /// Its number among the sizes.
    const fn class(self) -> u8 {
        self.0 - BLOCK_SHIFT as u8
    }

    const fn of_class(class: u8) -> BlockSize {
        BlockSize(class + BLOCK_SHIFT as u8)
    }
}

/// Where the pages of an allocation have their homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Page by page over all nodes.
    RoundRobin,
    /// Each page at the node that uses it first.
    FirstTouch,
    /// In as many stretches as there are nodes, one on each.
    Slices,
    Node(NodeId),
}

/// How an allocation is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub block: BlockSize,
    pub homes: Placement,
    pub protocol: ProtocolId,
    /// What elements are combined by, where the protocol has operations.
    pub operation: Option<Operation>,
}

impl Attributes {
    /// What a run has whose options are not given.
    pub const PLAIN: Attributes = Attributes {
        block: BlockSize::MIN,
        homes: Placement::RoundRobin,
        protocol: ProtocolId::at(0),
        operation: None,
    };
}

/// Number of an arena: those of the lower half, then those of each node's zone; by protocol, policy and block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaId(u32);

impl ArenaId {
    /// The arena of such allocations.
    pub const fn of(attributes: Attributes) -> ArenaId {
        let (class, protocol) = (attributes.block.class() as usize, attributes.protocol.index());
        ArenaId(match attributes.homes {
            Placement::RoundRobin => 2 * protocol * BLOCK_SIZES + class,
            // There, homes are known by the page.
            Placement::FirstTouch | Placement::Slices => (2 * protocol + 1) * BLOCK_SIZES + class,
            Placement::Node(node) => LOWER + node.index() * IN_ZONE + protocol * BLOCK_SIZES + class,
        } as u32)
    }

    /// The pool of a node, in a run with these attributes.
    const fn pool_of(node: u64, defaults: Attributes) -> ArenaId {
        let class = defaults.protocol.index() * BLOCK_SIZES + defaults.block.class() as usize;
        ArenaId((LOWER + node as usize * IN_ZONE + AT_HOME + class) as u32)
    }

    /// Whether it is a pool.
    pub const fn is_pool(self) -> bool {
        match (self.0 as usize).checked_sub(LOWER) {
            Some(place) => place % IN_ZONE >= AT_HOME,
            None => false,
        }
    }

    /// How many arenas a run of so many nodes has.
    pub const fn count(nodes: u64) -> u64 {
        LOWER as u64 + nodes * IN_ZONE as u64
    }

    /// The arena with that number, if a run of so many nodes has it.
    pub const fn new(number: u64, nodes: u64) -> Option<ArenaId> {
        if number < ArenaId::count(nodes) { Some(ArenaId(number as u32)) } else { None }
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whose zone it is in; `None` in the lower half.
    pub const fn zone(self) -> Option<u64> {
        match (self.0 as usize).checked_sub(LOWER) {
            Some(place) => Some((place / IN_ZONE) as u64),
            None => None,
        }
    }

    /// The protocol of its blocks.
    pub const fn protocol(self) -> ProtocolId {
        ProtocolId::at(match (self.0 as usize).checked_sub(LOWER) {
            Some(place) => place % AT_HOME / BLOCK_SIZES,
            None => self.0 as usize / (2 * BLOCK_SIZES),
        })
    }

    /// Its place among those of its zone.
    const fn class_in_zone(self) -> u8 {
        ((self.0 as usize - LOWER) % IN_ZONE) as u8
    }

    /// The size of its blocks.
    pub const fn block(self) -> BlockSize {
        // The arenas of the lower half, and of a zone, are a multiple of the sizes.
        BlockSize::of_class((self.0 as usize % BLOCK_SIZES) as u8)
    }
}

/// A stretch of the segment: at its end `N` slices, each of one class, before them the class that gets the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slices<const N: usize> {
    bytes: u64,
    /// log2 of a slice's bytes.
    shift: u32,
    /// How many slices there are: `N`, or none.
    count: u64,
    /// By slice, counted from the end.
    classes: [u8; N],
    rest: u8,
}

impl<const N: usize> Slices<N> {
    /// A stretch of `bytes` bytes with slices of a `parts`-th at most. The last `many` slices are of one class; the others are numbered, without the rest.
    const fn new(bytes: u64, parts: u64, rest: u8, (last, many): (u8, usize)) -> Self {
        let slice = bytes / parts;
        let has_slices = slice >= PAGE_BYTES;
        let mut classes = [0; N];
        let mut slice_number = 0;
        while slice_number < N {
            classes[slice_number] = match slice_number.checked_sub(many) {
                Some(number) => number as u8 + (number as u8 >= rest) as u8,
                None => last,
            };
            slice_number += 1;
        }
        Slices {
            bytes,
            shift: if has_slices { slice.ilog2() } else { 0 },
            count: if has_slices { N as u64 } else { 0 },
            classes,
            rest,
        }
    }

    /// The class of an offset below `bytes`.
    #[inline]
    fn class_at(&self, offset: u64) -> u8 {
        let slice = (self.bytes - 1 - offset) >> self.shift;
        if slice < self.count { self.classes[slice as usize] } else { self.rest }
    }

    /// First offset and bytes of a class; `None` if it has no slice.
    fn range_of(&self, class: u8) -> Option<(u64, u64)> {
        if class == self.rest {
            return Some((0, self.bytes - (self.count << self.shift)));
        }
        let place = self.classes.iter().position(|&each| each == class).filter(|_| self.count != 0)? as u64;
        let slices = self.classes.iter().filter(|&&each| each == class).count() as u64;
        Some((self.bytes - ((place + slices) << self.shift), slices << self.shift))
    }
}

/// The arenas of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    nodes: u64,
    half_bytes: u64,
    zone_bytes: u64,
    zone_shift: u32,
    lower: Slices<{ LOWER - 1 }>,
    zone: Slices<IN_SLICES>,
    /// Where a zone's pool begins; it reaches to the end.
    pool_offset: u64,
    defaults: Attributes,
}

impl Partition {
    /// The partition of `segment_bytes` bytes over `nodes` nodes. `defaults`: those of the run; the homes are a policy, no node.
    pub const fn new(nodes: u32, segment_bytes: u64, defaults: Attributes) -> Partition {
        let half_bytes = segment_bytes / 2 / PAGE_BYTES * PAGE_BYTES;
        let share = half_bytes / nodes as u64;
        let zone_shift = if share >= PAGE_BYTES { share.ilog2() } else { 0 };
        let zone_bytes = if share >= PAGE_BYTES { 1 << zone_shift } else { 0 };
        let own = defaults.protocol.index() as u8 * BLOCK_SIZES as u8 + defaults.block.class();
        let pool = (ArenaId::pool_of(0, defaults).class_in_zone(), POOL_SLICES);
        let zone = Slices::new(zone_bytes, ZONE_SLICES, own, pool);
        let pool_bytes = if zone.count == 0 { 0 } else { (POOL_SLICES as u64) << zone.shift };
        Partition {
            nodes: nodes as u64,
            half_bytes,
            zone_bytes,
            zone_shift,
            lower: Slices::new(half_bytes, LOWER_SLICES, ArenaId::of(defaults).index() as u8, (0, 0)),
            zone,
            pool_offset: zone_bytes - pool_bytes,
            defaults,
        }
    }

    /// A segment whose blocks all have that size.
    pub const fn uniform(block: BlockSize) -> Partition {
        let defaults = Attributes { block, ..Attributes::PLAIN };
        let mut partition = Partition::new(1, 2 * PAGE_BYTES, defaults);
        // Without slices there is nothing that depends on the size.
        (partition.half_bytes, partition.lower.bytes) = (SEGMENT_MAX_BYTES, SEGMENT_MAX_BYTES);
        partition
    }

    /// What allocations have that do not choose.
    pub const fn defaults(&self) -> Attributes {
        self.defaults
    }

    pub const fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Bytes of the lower half.
    pub const fn half_bytes(&self) -> u64 {
        self.half_bytes
    }

    /// The number of the zone that holds an offset of the upper half.
    #[inline]
    pub fn zone_at(&self, offset: u64) -> Option<u64> {
        // Too small a segment has zones of no bytes.
        Some((offset - self.half_bytes) >> self.zone_shift).filter(|zone| *zone < self.nodes && self.zone_bytes != 0)
    }

    /// The arena of an address; `None` when it belongs to nobody.
    #[inline]
    pub fn arena_of(&self, addr: u64) -> Option<ArenaId> {
        let offset = addr.checked_sub(SEGMENT_BASE)?;
        if offset < self.half_bytes {
            return Some(ArenaId(self.lower.class_at(offset).into()));
        }
        let zone = self.zone_at(offset)? as usize;
        let class = self.zone.class_at((offset - self.half_bytes) & (self.zone_bytes - 1));
        Some(ArenaId((LOWER + zone * IN_ZONE) as u32 + u32::from(class)))
    }

    /// The node whose pages those at an offset of the upper half are; `None` where they are dealt out by turn.
    #[inline]
    pub fn zone_of_pages(&self, offset: u64) -> Option<Option<u64>> {
        let zone = self.zone_at(offset)?;
        let in_pool = (offset - self.half_bytes) & (self.zone_bytes - 1) >= self.pool_offset;
        Some((!in_pool || matches!(self.defaults.homes, Placement::FirstTouch)).then_some(zone))
    }

    /// Whose turn the page at an offset in a pool is, counted from node 0 on: the first one is that of the pool's node, which has the fewest messages by it.
    pub fn turn_in_pool(&self, offset: u64) -> u64 {
        let place = offset - self.half_bytes;
        (place >> self.zone_shift) + ((place & (self.zone_bytes - 1)) - self.pool_offset) / PAGE_BYTES
    }

    /// The pool of a node.
    pub fn pool_of(&self, node: NodeId) -> ArenaId {
        ArenaId::pool_of(node.index() as u64, self.defaults)
    }

    /// Whether pages at that offset of the lower half get their homes by first touch.
    #[inline]
    pub fn is_first_touch(&self, offset: u64) -> bool {
        usize::from(self.lower.class_at(offset)) / BLOCK_SIZES % 2 == 1
    }

    /// The size of the block that holds an address; of an address that belongs to nobody, any.
    #[inline]
    pub fn block_at(&self, addr: u64) -> BlockSize {
        match self.arena_of(addr) {
            Some(arena) => arena.block(),
            None => BlockSize::MIN,
        }
    }

    /// First address and bytes of an arena; `None` if this run has no room for it.
    pub fn arena_range(&self, arena: ArenaId) -> Option<(u64, u64)> {
        let (start, (offset, bytes)) = match arena.zone() {
            None => (0, self.lower.range_of(arena.0 as u8)?),
            Some(zone) => (self.half_bytes + zone * self.zone_bytes, self.zone.range_of(arena.class_in_zone())?),
        };
        (bytes != 0).then_some((SEGMENT_BASE + start + offset, bytes))
    }

    /// The least GiB of a larger segment in which the arena has room for `bytes` bytes behind `limit`, its first address that was never handed out (0: none
    /// was). An arena may be smaller in a larger segment: slices are powers of two.
    pub fn enough_gib(&self, arena: ArenaId, bytes: u64, limit: u64) -> Option<u64> {
        const GIB_SHIFT: u32 = 30;
        let taken = self.arena_range(arena).map_or(0, |(base, _)| limit.saturating_sub(base));
        let pages = |bytes: u64| bytes.checked_next_multiple_of(PAGE_BYTES);
        let needed = pages(taken)?.checked_add(pages(bytes)?)?;
        let has_room = |gib: &u64| {
            let larger = Partition::new(self.nodes as u32, gib << GIB_SHIFT, self.defaults);
            larger.arena_range(arena).is_some_and(|(_, bytes)| bytes >= needed)
        };
        let gib = (2 * self.half_bytes) >> GIB_SHIFT;
        (gib + 1..=SEGMENT_MAX_BYTES >> GIB_SHIFT).find(has_room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn all_defaults() -> Vec<Attributes> {
        let sizes = (0..BLOCK_SIZES as u8).map(BlockSize::of_class);
        let policies = [Placement::RoundRobin, Placement::FirstTouch];
        let placed = sizes.flat_map(|block| policies.map(|homes| Attributes { block, homes, ..Attributes::PLAIN }));
        placed
            .flat_map(|placed| blizzard_protocol::list::ALL.map(|protocol| Attributes { protocol, ..placed }))
            .collect()
    }

    #[test]
    fn only_powers_of_two_from_64_to_4096_are_sizes() {
        let good: Vec<u64> = (0..10_000).filter(|&bytes| BlockSize::new(bytes).is_some()).collect();
        assert_eq!(good, [64, 128, 256, 512, 1024, 2048, 4096]);
        assert!(BlockSize::new(u64::MAX).is_none());
        assert!(good.iter().all(|&bytes| BlockSize::new(bytes).unwrap().bytes() == bytes));
    }

    #[test]
    fn every_arena_covers_exactly_the_addresses_that_name_it() {
        for nodes in [1, 2, 3, 4, 7, 8, 31, 32, 63, 64] {
            for defaults in all_defaults() {
                let bytes = 1 << 30;
                let partition = Partition::new(nodes, bytes, defaults);
                let mut ranges = Vec::new();
                for number in 0.. {
                    let Some(arena) = ArenaId::new(number, nodes.into()) else { break };
                    let Some((base, len)) = partition.arena_range(arena) else {
                        assert!(arena.is_pool() && arena != ArenaId::pool_of(arena.zone().unwrap(), defaults));
                        continue;
                    };
                    assert!(base.is_multiple_of(PAGE_BYTES) && len.is_multiple_of(PAGE_BYTES) && len > 0);
                    for addr in [base, base + len / 2, base + len - 1] {
                        assert_eq!(partition.arena_of(addr), Some(arena));
                        assert_eq!(partition.block_at(addr), arena.block());
                        let homes = partition.is_first_touch((addr - SEGMENT_BASE).min(partition.half_bytes() - 1));
                        assert!(arena.zone().is_some() || homes == (arena.index() / BLOCK_SIZES % 2 == 1));
                    }
                    assert_eq!(arena.zone().is_some(), base >= SEGMENT_BASE + partition.half_bytes());
                    ranges.push((base, len));
                }
                assert_eq!(ranges.len(), LOWER + nodes as usize * (AT_HOME + 1));
                ranges.sort_unstable();
                assert_eq!(ranges[0].0, SEGMENT_BASE);
                assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "no gap, no overlap");
                let (base, len) = ranges[ranges.len() - 1];
                assert!(base + len <= SEGMENT_BASE + bytes && SEGMENT_BASE + bytes - base - len < bytes / 4);
                assert_eq!(partition.arena_of(base + len), None);
                // The run's own arena has more than half of the lower half.
                let own = partition.arena_range(ArenaId::of(defaults)).unwrap();
                assert_eq!(own.0, SEGMENT_BASE);
                assert!(own.1 > bytes / 4);
            }
        }
    }

    #[test]
    fn a_choice_names_its_arena() {
        let block = BlockSize::new(512).unwrap();
        for protocol in blizzard_protocol::list::ALL {
            let of = |homes| ArenaId::of(Attributes { block, homes, protocol, operation: None });
            let arenas = [Placement::RoundRobin, Placement::FirstTouch, Placement::Node(node(5))].map(of);
            assert!(arenas.iter().all(|arena| arena.block() == block && arena.protocol() == protocol));
            assert_eq!(arenas.map(ArenaId::zone), [None, None, Some(5)]);
            assert_eq!(ArenaId::new(arenas[2].index() as u64, 6), Some(arenas[2]));
            assert_eq!(ArenaId::new(arenas[2].index() as u64, 5), None);
        }
    }

    #[test]
    fn the_least_segment_with_room_is_named() {
        for nodes in [1, 3, 64] {
            let partition = Partition::new(nodes, 64 << 30, Attributes::PLAIN);
            let own = ArenaId::of(Attributes::PLAIN);
            let other = ArenaId::of(Attributes { homes: Placement::FirstTouch, ..Attributes::PLAIN });
            let at_home = ArenaId::of(Attributes { homes: Placement::Node(node(nodes - 1)), ..Attributes::PLAIN });
            for (arena, bytes) in [(own, 60 << 30), (own, 19 << 30), (other, 300 << 20), (at_home, 1 << 30)] {
                let (base, has) = partition.arena_range(arena).unwrap();
                for taken in [0, 4096 - 64, has / 2, has] {
                    let room = |gib| {
                        let larger = Partition::new(nodes, gib << 30, Attributes::PLAIN);
                        larger.arena_range(arena).unwrap().1 >= (taken + bytes).next_multiple_of(PAGE_BYTES)
                    };
                    let enough = partition.enough_gib(arena, bytes, base + taken);
                    assert_eq!(enough, (65..=512).find(|&gib| room(gib)), "{nodes} {arena:?} {bytes} {taken}");
                }
            }
            assert!((121..200).contains(&partition.enough_gib(own, 60 << 30, 0).unwrap()));
            for bytes in [1 << 50, u64::MAX] {
                assert_eq!(partition.enough_gib(own, bytes, 0), None);
            }
        }
    }

    #[test]
    fn small_segments_have_the_arenas_that_fit() {
        let defaults = Attributes::PLAIN;
        let other = Attributes { block: BlockSize::new(128).unwrap(), ..defaults };
        // 16 pages in the lower half, 4 in each zone: no slice has a page.
        let small = Partition::new(4, 32 * PAGE_BYTES, defaults);
        assert_eq!(small.arena_range(ArenaId::of(defaults)), Some((SEGMENT_BASE, 16 * PAGE_BYTES)));
        assert_eq!(small.arena_range(ArenaId::of(other)), None);
        let pool = small.pool_of(node(1));
        assert_eq!((small.arena_range(pool), pool.is_pool()), (None, true));
        assert_eq!((pool.zone(), pool.block(), pool.protocol()), (Some(1), defaults.block, defaults.protocol));
        assert_eq!(small.zone_of_pages(31 * PAGE_BYTES), Some(Some(3)));
        assert_eq!(small.arena_range(ArenaId::of(Attributes { homes: Placement::Node(node(1)), ..other })), None);
        let none = Partition::new(4, PAGE_BYTES, defaults);
        assert_eq!(none.arena_of(SEGMENT_BASE), None);
        assert_eq!(none.arena_range(ArenaId::of(defaults)), None);
    }
}
