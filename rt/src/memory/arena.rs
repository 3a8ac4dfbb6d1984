//! The allocator of one arena of the segment.
//!
//! Purpose: hand out and take back ranges of the segment without ever touching the segment itself, because a touch there can be a
//! miss. Input: sizes and addresses; output: [`Chunk`]s. All bookkeeping is in a side table with one entry per 64-byte unit,
//! of which only those at chunk borders are ever written. Runs on the arena's owner only; other nodes ask by message.
//!
//! Free chunks hang in doubly linked bins: one for each size up to 64 units, then four for each power of two. An allocation takes the
//! first fit of its own bin, else the first chunk of the next bin that has one, else fresh memory above the high-water
//! mark. Freed chunks are joined with free neighbours at once (boundary tags).
//! **Invariants**: no two free chunks touch; memory above [`Arena::limit`] was never handed out, so it still is all zero; a unit that is
//! neither the first unit of a chunk nor the last of a free one has an all-zero entry.
//! Source: Knuth, The Art of Computer Programming, volume 1, 2.5 (boundary tags, algorithm C).

use crate::kernel::own_memory::{KernelTable, Zeroed};
use crate::kernel::sys;
use crate::memory::partition::PAGE_BYTES;
use blizzard_contract::arena_unit::{FREE, FREE_END, FREE_SLICED, SLICED, USED};
use blizzard_contract::{ArenaRecord, ArenaUnit as Unit, BLOCK_BYTES, BLOCK_SHIFT};

/// Sizes with a bin of their own.
const EXACT_BINS: u32 = 64;
const SUBDIVISIONS_LOG2: u32 = 2;
const BINS: usize = EXACT_BINS as usize + ((32 - 6) << SUBDIVISIONS_LOG2);
const MAP_WORDS: usize = BINS.div_ceil(64);
/// Most bytes of one arena: unit numbers are 32 bits. A larger range is used up to here.
pub const ARENA_MAX_BYTES: u64 = (u32::MAX as u64 - 1) << BLOCK_SHIFT;
/// "No chunk" in links and bins.
const NONE: u32 = 0;

/// Side-table entry of a unit.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
struct Entry(Unit);

// SAFETY: integers; zero is an interior unit.
unsafe impl Zeroed for Entry {}

/// A range that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub addr: u64,
    /// Multiple of 64.
    pub bytes: u64,
    /// Was in use before: whoever asked for it has to zero it. Otherwise it is zero already.
    pub recycled: bool,
}

/// Why a free was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError {
    /// A free chunk starts there.
    AlreadyFree,
    /// No allocation starts there.
    NotAllocated,
}

impl FreeError {
    /// In an error line, behind the address.
    pub const fn text(self) -> &'static str {
        match self {
            FreeError::AlreadyFree => "is already free",
            FreeError::NotAllocated => "is not the start of an allocation, or was freed before",
        }
    }
}

/// One arena.
pub struct Arena {
    base: u64,
    units: u32,
    /// First unit that was never handed out.
    top: u32,
    /// Units of the chunks that are handed out.
    used: u32,
    table: KernelTable<Entry>,
    bins: [u32; BINS],
    /// Bit per bin: not empty.
    filled: [u64; MAP_WORDS],
    /// The first free chunk whose pages have their homes in slices.
    sliced: u32,
}

/// The bin of chunks of `size` units.
const fn bin_of(size: u32) -> usize {
    if size <= EXACT_BINS {
        return size as usize - 1;
    }
    let log2 = size.ilog2();
    let part = (size >> (log2 - SUBDIVISIONS_LOG2)) & ((1 << SUBDIVISIONS_LOG2) - 1);
    EXACT_BINS as usize + (((log2 - 6) << SUBDIVISIONS_LOG2) + part) as usize
}

impl Arena {
    /// An arena over `[base, base + bytes)`; `base` is 64-byte aligned.
    pub fn new(base: u64, bytes: u64) -> sys::Result<Arena> {
        let units = (bytes.min(ARENA_MAX_BYTES) >> BLOCK_SHIFT) as u32;
        Ok(Arena {
            base,
            units,
            top: 0,
            used: 0,
            table: KernelTable::new(u64::from(units))?,
            bins: [NONE; BINS],
            filled: [0; MAP_WORDS],
            sliced: NONE,
        })
    }

    /// First address that was never handed out.
    pub fn limit(&self) -> u64 {
        self.base + (u64::from(self.top) << BLOCK_SHIFT)
    }

    /// Bytes that are not handed out, whatever pieces they are in.
    pub fn free_bytes(&self) -> u64 {
        u64::from(self.units - self.used) << BLOCK_SHIFT
    }

    /// What the launcher must know to find what an address belongs to.
    pub fn record(&self) -> ArenaRecord {
        ArenaRecord { base: self.base, units: self.units.into(), table: self.table.base() }
    }

    /// Takes at least `bytes` bytes (at least one unit); `None` when no room is left. `by`: the place in the program that wants them.
    pub fn alloc(&mut self, bytes: u64, by: u64) -> Option<Chunk> {
        let size = u32::try_from(bytes.max(1).div_ceil(BLOCK_BYTES)).ok()?;
        let (at, recycled) = match self.take_free(size) {
            Some(at) => (at, true),
            None if self.units - self.top >= size => {
                let at = self.top;
                self.top += size;
                (at, false)
            }
            None => return None,
        };
        self.used += size;
        self.put(at, Unit { kind: USED, size, next: by as u32, prev: (by >> 32) as u32 });
        Some(Chunk {
            addr: self.base + (u64::from(at) << BLOCK_SHIFT),
            bytes: u64::from(size) << BLOCK_SHIFT,
            recycled,
        })
    }

    /// Takes whole pages that shall have their homes in slices: a chunk that had this size and such homes before, else fresh ones. Where neither is left, any free
    /// chunk, whose pages keep their homes. A chunk that is not recycled has no homes yet.
    pub fn alloc_sliced(&mut self, bytes: u64, by: u64) -> Option<Chunk> {
        const PAGE: u32 = (PAGE_BYTES / BLOCK_BYTES) as u32;
        let size = u32::try_from(bytes.max(1).checked_next_multiple_of(PAGE_BYTES)? / BLOCK_BYTES).ok()?;
        let start = self.top.checked_next_multiple_of(PAGE)?;
        let (at, kind, recycled) = if let Some(at) = self.take_sliced(size) {
            (at, SLICED, true)
        } else if self.units.checked_sub(start).is_some_and(|left| left >= size) {
            let gap = Chunk { addr: self.limit(), bytes: u64::from(start - self.top) << BLOCK_SHIFT, recycled: false };
            if gap.bytes != 0 {
                // What is in front of the page can be used by others.
                self.alloc_fresh(start - self.top);
                self.free(gap.addr).ok()?;
            }
            self.top = start + size;
            (start, SLICED, false)
        } else {
            (self.take_free(size)?, USED, true)
        };
        self.used += size;
        self.put(at, Unit { kind, size, next: by as u32, prev: (by >> 32) as u32 });
        Some(Chunk {
            addr: self.base + (u64::from(at) << BLOCK_SHIFT),
            bytes: u64::from(size) << BLOCK_SHIFT,
            recycled,
        })
    }

    /// Hands out so many units above the high-water mark, which there are.
    fn alloc_fresh(&mut self, size: u32) {
        self.put(self.top, Unit { kind: USED, size, ..Unit::default() });
        self.top += size;
        self.used += size;
    }

    /// Takes a free chunk of exactly that size whose pages have their homes in slices.
    fn take_sliced(&mut self, size: u32) -> Option<u32> {
        let (mut link, mut before) = (self.sliced, NONE);
        while link != NONE {
            let unit = self.unit(link - 1);
            if unit.size == size {
                match before {
                    NONE => self.sliced = unit.next,
                    _ => self.put(before - 1, Unit { next: unit.next, ..self.unit(before - 1) }),
                }
                return Some(link - 1);
            }
            (before, link) = (link, unit.next);
        }
        None
    }

    /// Takes a chunk back; returns its bytes.
    pub fn free(&mut self, addr: u64) -> Result<u64, FreeError> {
        let offset = addr.checked_sub(self.base).ok_or(FreeError::NotAllocated)?;
        if !offset.is_multiple_of(BLOCK_BYTES) || offset >> BLOCK_SHIFT >= u64::from(self.top) {
            return Err(FreeError::NotAllocated);
        }
        let mut at = (offset >> BLOCK_SHIFT) as u32;
        let unit = self.unit(at);
        match unit.kind {
            USED => {}
            SLICED => {
                self.used -= unit.size;
                self.put(at, Unit { kind: FREE_SLICED, size: unit.size, next: self.sliced, prev: NONE });
                self.sliced = at + 1;
                return Ok(u64::from(unit.size) << BLOCK_SHIFT);
            }
            FREE | FREE_SLICED => return Err(FreeError::AlreadyFree),
            _ => return Err(FreeError::NotAllocated),
        }
        let mut size = unit.size;
        self.used -= size;
        self.put(at, Unit::default());
        let after = at + size;
        if after < self.top {
            let next = self.unit(after);
            if next.kind == FREE {
                self.unlink(after, next);
                size += next.size;
            }
        }
        if at > 0 {
            let before = self.unit(at - 1);
            // The last unit of a one-unit chunk is its first.
            if before.kind == FREE_END || before.kind == FREE {
                let start = at - before.size;
                let head = self.unit(start);
                self.unlink(start, head);
                at = start;
                size += before.size;
            }
        }
        self.link(at, size);
        Ok(u64::from(unit.size) << BLOCK_SHIFT)
    }

    fn unit(&self, at: u32) -> Unit {
        self.table.get(u64::from(at)).0
    }

    fn put(&mut self, at: u32, unit: Unit) {
        self.table.set(u64::from(at), Entry(unit));
    }

    /// Makes `[at, at + size)` a free chunk at the front of its bin.
    fn link(&mut self, at: u32, size: u32) {
        let bin = bin_of(size);
        let first = self.bins[bin];
        if size > 1 {
            self.put(at + size - 1, Unit { kind: FREE_END, size, ..Unit::default() });
        }
        self.put(at, Unit { kind: FREE, size, next: first, prev: NONE });
        if first != NONE {
            let head = self.unit(first - 1);
            self.put(first - 1, Unit { prev: at + 1, ..head });
        }
        self.bins[bin] = at + 1;
        self.filled[bin / 64] |= 1 << (bin % 64);
    }

    /// Takes the free chunk `unit` at `at` out of its bin and clears its entries.
    fn unlink(&mut self, at: u32, unit: Unit) {
        let bin = bin_of(unit.size);
        if unit.prev == NONE {
            self.bins[bin] = unit.next;
            if unit.next == NONE {
                self.filled[bin / 64] &= !(1 << (bin % 64));
            }
        } else {
            let prev = self.unit(unit.prev - 1);
            self.put(unit.prev - 1, Unit { next: unit.next, ..prev });
        }
        if unit.next != NONE {
            let next = self.unit(unit.next - 1);
            self.put(unit.next - 1, Unit { prev: unit.prev, ..next });
        }
        self.put(at, Unit::default());
        self.put(at + unit.size - 1, Unit::default());
    }

    /// Finds a free chunk of at least `size` units, returns the rest of it to its bin, and gives its first unit.
    fn take_free(&mut self, size: u32) -> Option<u32> {
        let own = bin_of(size);
        let mut link = self.bins[own];
        while link != NONE && self.unit(link - 1).size < size {
            link = self.unit(link - 1).next;
        }
        if link == NONE {
            // Every chunk of a higher bin is large enough.
            link = self.bins[self.next_filled(own + 1)?];
        }
        let at = link - 1;
        let unit = self.unit(at);
        self.unlink(at, unit);
        if unit.size > size {
            self.link(at + size, unit.size - size);
        }
        Some(at)
    }

    /// The first bin from `from` on that is not empty.
    fn next_filled(&self, from: usize) -> Option<usize> {
        for word in from / 64..MAP_WORDS {
            let mut bits = self.filled[word];
            if word == from / 64 {
                bits &= u64::MAX << (from % 64);
            }
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const BASE: u64 = 0x2000_0000_0000;

    impl Arena {
        /// Walks all chunks below the high-water mark and checks the invariants; returns the units in use.
        fn audit(&self) -> u32 {
            let (mut at, mut used, mut previous_free) = (0, 0, false);
            let mut in_bins = BTreeMap::new();
            for (bin, &first) in self.bins.iter().enumerate() {
                let (mut link, mut prev) = (first, NONE);
                assert_eq!(self.filled[bin / 64] >> (bin % 64) & 1 == 1, first != NONE);
                while link != NONE {
                    let unit = self.unit(link - 1);
                    assert_eq!((unit.kind, unit.prev, bin_of(unit.size)), (FREE, prev, bin));
                    in_bins.insert(link - 1, unit.size);
                    (prev, link) = (link, unit.next);
                }
            }
            while at < self.top {
                let unit = self.unit(at);
                match unit.kind {
                    USED | SLICED => used += unit.size,
                    FREE_SLICED => {}
                    FREE => {
                        assert!(!previous_free, "two free chunks touch at {at}");
                        assert_eq!(in_bins.remove(&at), Some(unit.size));
                        if unit.size > 1 {
                            let end = self.unit(at + unit.size - 1);
                            assert_eq!((end.kind, end.size), (FREE_END, unit.size));
                        }
                    }
                    kind => panic!("no chunk at {at}: {kind}"),
                }
                let last_inside = at + unit.size - u32::from(unit.kind == FREE);
                for inside in at + 1..last_inside {
                    assert_eq!(self.unit(inside).kind, 0);
                }
                previous_free = unit.kind == FREE;
                at += unit.size;
            }
            assert_eq!(at, self.top);
            assert_eq!(used, self.used);
            assert_eq!(self.free_bytes(), u64::from(self.units - used) * BLOCK_BYTES);
            assert!(in_bins.is_empty());
            used
        }
    }

    #[test]
    fn bins_are_ordered_and_hold_what_they_promise() {
        let mut last = 0;
        for size in (1..100_000).chain([1 << 20, (1 << 20) + 1, 1 << 31, u32::MAX]) {
            let bin = bin_of(size);
            assert!(bin >= last && bin < BINS, "{size}");
            last = bin;
        }
        assert_eq!((bin_of(64), bin_of(65), bin_of(79), bin_of(80)), (63, 64, 64, 65));
    }

    #[test]
    fn fresh_memory_comes_first_to_last_and_recycled_memory_says_so() {
        let mut arena = Arena::new(BASE, 1 << 20).unwrap();
        let a = arena.alloc(1, 0).unwrap();
        let b = arena.alloc(65, 0).unwrap();
        assert_eq!(a, Chunk { addr: BASE, bytes: 64, recycled: false });
        assert_eq!(b, Chunk { addr: BASE + 64, bytes: 128, recycled: false });
        assert_eq!(arena.limit(), BASE + 192);
        assert_eq!(arena.free(a.addr), Ok(64));
        assert_eq!(arena.alloc(64, 0), Some(Chunk { recycled: true, ..a }));
        assert_eq!(arena.free(b.addr), Ok(128));
        assert_eq!(arena.alloc(0, 0), Some(Chunk { addr: BASE + 64, bytes: 64, recycled: true }));
        assert_eq!(arena.audit(), 2);
    }

    #[test]
    fn wrong_frees_are_refused_and_change_nothing() {
        let mut arena = Arena::new(BASE, 1 << 20).unwrap();
        let chunks: Vec<_> = (0..4).map(|_| arena.alloc(256, 0).unwrap().addr).collect();
        arena.free(chunks[1]).unwrap();
        assert_eq!(arena.free(chunks[1]), Err(FreeError::AlreadyFree));
        arena.free(chunks[2]).unwrap();
        // Joined with its neighbour: no chunk starts there any more.
        assert_eq!(arena.free(chunks[2]), Err(FreeError::NotAllocated));
        for foreign in [0, BASE - 64, chunks[0] + 8, chunks[0] + 64, arena.limit(), BASE + (1 << 20), u64::MAX] {
            assert_eq!(arena.free(foreign), Err(FreeError::NotAllocated), "{foreign:#x}");
        }
        assert_eq!(arena.audit(), 8);
    }

    #[test]
    fn chunks_with_homes_in_slices_are_used_again_as_a_whole() {
        let mut arena = Arena::new(BASE, 64 << 10).unwrap();
        let odd = arena.alloc(100, 0).unwrap();
        let [a, b] = [5000, 4096].map(|bytes| arena.alloc_sliced(bytes, 7).unwrap());
        assert_eq!(a, Chunk { addr: BASE + 4096, bytes: 8192, recycled: false });
        assert_eq!(b, Chunk { addr: BASE + 12288, bytes: 4096, recycled: false });
        for chunk in [a, b] {
            arena.free(chunk.addr).unwrap();
            assert_eq!(arena.free(chunk.addr), Err(FreeError::AlreadyFree));
        }
        // What is in front of the first page is for others; they get nothing of the freed ones.
        assert_eq!(arena.alloc(3968, 0), Some(Chunk { addr: odd.addr + 128, bytes: 3968, recycled: true }));
        assert_eq!(arena.alloc(4096, 0).unwrap().addr, BASE + 16384);
        assert_eq!(arena.alloc_sliced(8192, 7), Some(Chunk { recycled: true, ..a }));
        assert_eq!(arena.alloc_sliced(8192, 7).unwrap().addr, BASE + 20480);
        assert_eq!(arena.alloc_sliced(4096, 7), Some(Chunk { recycled: true, ..b }));
        arena.audit();
        // The rest is used up: what was freed by others does.
        let rest = arena.alloc(36 << 10, 0).unwrap();
        assert_eq!((arena.alloc_sliced(4096, 0), arena.free(rest.addr)), (None, Ok(36 << 10)));
        assert_eq!(arena.alloc_sliced(4096, 0), Some(Chunk { addr: rest.addr, bytes: 4096, recycled: true }));
        arena.audit();
    }

    #[test]
    fn an_exhausted_arena_says_no_and_recovers() {
        let mut arena = Arena::new(BASE, 64 * 100).unwrap();
        assert_eq!(arena.alloc(64 * 101, 0), None);
        assert_eq!(arena.alloc(u64::MAX, 0), None);
        let chunks: Vec<_> = (0..100).map(|_| arena.alloc(64, 0).unwrap().addr).collect();
        assert_eq!(arena.alloc(1, 0), None);
        for &addr in chunks.iter().step_by(2).chain(chunks.iter().skip(1).step_by(2)) {
            arena.free(addr).unwrap();
        }
        // Everything was joined again.
        assert_eq!(arena.alloc(64 * 100, 0), Some(Chunk { addr: BASE, bytes: 6400, recycled: true }));
    }

    #[test]
    fn random_traffic_keeps_the_invariants_and_never_overlaps() {
        let mut arena = Arena::new(BASE, 64 << 20).unwrap();
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..20_000 {
            if live.len() > 300 || (!live.is_empty() && random() % 5 < 2) {
                let &addr = live.keys().nth((random() % live.len() as u64) as usize).unwrap();
                assert_eq!(arena.free(addr), Ok(live.remove(&addr).unwrap()));
            } else {
                let bytes = 1 + random() % (1 << (6 + random() % 12));
                let chunk = arena.alloc(bytes, 0).unwrap();
                assert!(chunk.bytes >= bytes && chunk.bytes < bytes + 64 && chunk.addr.is_multiple_of(64));
                let below = live.range(..chunk.addr).next_back();
                assert!(below.is_none_or(|(&addr, &len)| addr + len <= chunk.addr));
                let above = live.range(chunk.addr..).next();
                assert!(above.is_none_or(|(&addr, _)| chunk.addr + chunk.bytes <= addr));
                live.insert(chunk.addr, chunk.bytes);
            }
            if round % 500 == 0 {
                assert_eq!(u64::from(arena.audit()) * 64, live.values().sum::<u64>());
            }
        }
        for &addr in live.keys() {
            arena.free(addr).unwrap();
        }
        assert_eq!(arena.audit(), 0);
    }
}
