//! Access tags of the segment's blocks, and the node's own copies of them.
//!
//! Purpose: [`Space`] is one node's view of the segment: its access control, its size, its blocks. In a program there is one; a test has
//! several nodes in one process, each with its own. Input and output: addresses of the segment, as
//! programs use them on every node.
//! **Invariants**: only the node's own thread changes its tags (design section 5, atomicity); every method panics on an address
//! outside the segment instead of touching other memory, so callers check addresses that come from messages first.

use crate::memory::access_control::interface::AccessControl;
use crate::memory::access_control::program::{self, Chosen};
use crate::memory::partition::{BlockSize, Partition};
use crate::memory::segment;
use blizzard_contract::{BLOCK_BYTES, BLOCK_MAX_BYTES, BLOCK_SHIFT, SEGMENT_BASE};
use blizzard_protocol::ids::{BLOCK_WORDS, Block};
use blizzard_protocol::tag::Tag;
use core::ops::Range;

#[cold]
fn refuse_outside(addr: u64) -> ! {
    panic!("{addr:#x} is outside the segment")
}

#[cold]
fn refuse_inside(addr: u64) -> ! {
    panic!("{addr:#x} is inside a block")
}

/// One node's copy of the segment and its tags.
#[derive(Clone, Copy, Debug)]
pub struct Space<C = Chosen> {
    control: C,
    bytes: u64,
    /// Says by address how many bytes change hands together.
    partition: Partition,
}

#[cfg(not(feature = "guard"))]
impl Space {
    /// A view of mapped memory.
    ///
    /// # Safety
    /// `bytes` bytes at `memory` and `bytes / 64` bytes at `tags` are mapped, readable and writable as long as the view is used, and
    /// used by this node alone.
    pub const unsafe fn new(memory: u64, tags: u64, bytes: u64) -> Space {
        // SAFETY: passed on from the caller.
        unsafe { Space::of(Chosen::at(memory, tags), bytes) }
    }
}

impl Space {
    /// The view that the program has.
    ///
    /// # Safety
    /// [`program::map_segment`] has mapped a segment of `bytes` bytes, and [`program::invalidate_segment`] its tags.
    pub unsafe fn program(bytes: u64) -> Space {
        // SAFETY: passed on from the caller.
        unsafe { Space::of(program::segment(), bytes) }
    }
}

impl<C: AccessControl> Space<C> {
    /// The view of that access control.
    ///
    /// # Safety
    /// It has mapped a segment of `bytes` bytes, a multiple of all sizes of blocks, and its tags can be changed.
    pub const unsafe fn of(control: C, bytes: u64) -> Space<C> {
        assert!(bytes.is_multiple_of(BLOCK_MAX_BYTES), "the segment ends inside a block");
        Space { control, bytes, partition: Partition::uniform(BlockSize::MIN) }
    }

    /// The same view with blocks as in that partition. Tags stay per minimum block; all those of a block are the same.
    #[must_use]
    pub fn with_partition(self, partition: Partition) -> Space<C> {
        Space { partition, ..self }
    }

    /// Bytes of the block that holds `addr`.
    #[inline]
    pub fn block_bytes(&self, addr: u64) -> u64 {
        self.partition.block_at(addr).bytes()
    }

    /// Minimum blocks of a block.
    #[inline]
    pub fn parts(&self, block: Block) -> u64 {
        self.block_bytes(block.addr()) / BLOCK_BYTES
    }

    /// The block that holds `addr`.
    #[inline]
    pub fn block_of(&self, addr: u64) -> Block {
        Block::of(addr & !(self.block_bytes(addr) - 1))
    }

    /// The next higher block; `None` at the end of the address space.
    #[inline]
    pub fn after(&self, block: Block) -> Option<Block> {
        block.addr().checked_add(self.block_bytes(block.addr())).map(Block::of)
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The segment's addresses.
    pub const fn range(&self) -> Range<u64> {
        SEGMENT_BASE..SEGMENT_BASE + self.bytes
    }

    /// Whether the segment holds `addr`.
    #[inline]
    pub const fn contains(&self, addr: u64) -> bool {
        // An address below the segment makes a number above all sizes.
        addr.wrapping_sub(SEGMENT_BASE) < self.bytes
    }

    /// The block's address, which is in the segment.
    #[inline]
    fn inside(&self, block: Block) -> u64 {
        if !self.contains(block.addr()) {
            refuse_outside(block.addr());
        }
        block.addr()
    }

    #[inline]
    fn address_of(&self, block: Block) -> *mut u64 {
        self.control.runtime_address(self.inside(block)) as *mut u64
    }

    /// Number of the block, counted from the segment's start.
    #[inline]
    pub fn number(&self, block: Block) -> u64 {
        (self.inside(block) - SEGMENT_BASE) >> BLOCK_SHIFT
    }

    /// The tag; `None` when the byte is no tag, which means that the table was overwritten.
    #[inline]
    pub fn tag(&self, block: Block) -> Option<Tag> {
        self.control.tag(self.inside(block))
    }

    /// Sets the tags of a block.
    pub fn set_tag(&self, block: Block, tag: Tag) {
        self.set_tags(block, self.block_bytes(block.addr()), tag);
    }

    /// [`Space::set_tag`] for who knows the block's size.
    #[inline]
    pub fn set_tags(&self, block: Block, bytes: u64, tag: Tag) {
        if block.addr() & (bytes - 1) != 0 {
            refuse_inside(block.addr());
        }
        // Sizes of blocks divide that of the segment: it holds all of the block.
        debug_assert!(bytes <= BLOCK_MAX_BYTES);
        self.control.set_tags(self.inside(block), bytes, tag);
    }

    /// Whether the block's tag allows the access now. Outside the segment everything is allowed.
    #[inline]
    pub fn allows(&self, block: Block, store: bool) -> bool {
        !self.contains(block.addr()) || self.control.allows(block.addr(), store)
    }

    /// By which address the runtime reads and writes; private memory is where the program has it.
    pub fn runtime_address(&self, addr: u64) -> *mut u8 {
        (if self.contains(addr) { self.control.runtime_address(addr) } else { addr }) as *mut u8
    }

    /// The data of a minimum block in the node's own copy.
    #[inline]
    pub fn read(&self, block: Block) -> [u64; BLOCK_WORDS] {
        let from = self.address_of(block);
        // Word by word, as rings are written: wider loads from words that were just stored would have to wait for the stores.
        // SAFETY: a whole aligned block inside the copy; the program's thread is inside the runtime.
        core::array::from_fn(|word| unsafe { from.add(word).read_volatile() })
    }

    /// Gives the memory of whole pages back to the kernel: they read as zero afterwards. Advice: a refusal costs memory only.
    pub fn discard(&self, addr: u64, bytes: u64) {
        let last = addr + bytes - 1;
        assert!(self.contains(addr) && self.contains(last), "{addr:#x} is outside the segment");
        // SAFETY: the node's own copy; the caller has made all its blocks Invalid.
        let _ = unsafe { self.control.discard(addr, bytes) };
    }

    /// Lets core dumps contain what is handed out of an arena, of which `bytes` bytes begin at `start`: from the limit `before` to `limit`.
    pub fn show_in_dumps(&self, (start, bytes): (u64, u64), before: u64, limit: u64) {
        let local = self.control.dumped_address(start);
        // SAFETY: an arena of the segment.
        unsafe { segment::show_in_dumps(local, (start, start + bytes), before, limit) };
    }

    /// Replaces the data of a minimum block in the node's own copy.
    #[inline]
    pub fn write(&self, block: Block, data: &[u64; BLOCK_WORDS]) {
        let to = self.address_of(block);
        for (word, &value) in data.iter().enumerate() {
            // SAFETY: as in `read`.
            unsafe { to.add(word).write_volatile(value) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blizzard_contract as contract;

    fn space(bytes: usize) -> (Space, Vec<u64>, Vec<u8>) {
        let mut memory = vec![0u64; bytes / 8];
        let mut tags = vec![contract::TAG_INVALID; bytes / 64];
        // SAFETY: the vectors are returned with the view and not moved in memory.
        let space = unsafe { Space::new(memory.as_mut_ptr() as u64, tags.as_mut_ptr() as u64, bytes as u64) };
        (space, memory, tags)
    }

    #[test]
    fn tags_decide_accesses() {
        let (space, _memory, tags) = space(4096);
        let block = Block::of(SEGMENT_BASE + 130);
        assert_eq!((block.addr(), space.number(block)), (SEGMENT_BASE + 128, 2));
        for (tag, load, store) in [
            (Tag::Writable, true, true),
            (Tag::ReadOnly, true, false),
            (Tag::Invalid, false, false),
            (Tag::Busy, false, false),
        ] {
            space.set_tag(block, tag);
            assert_eq!(space.tag(block), Some(tag));
            assert_eq!((space.allows(block, false), space.allows(block, true)), (load, store));
        }
        assert_eq!(tags[1], contract::TAG_INVALID);
        assert_eq!(tags[2], contract::TAG_BUSY);
        // Private memory and the address behind the segment are not the runtime's business.
        assert!(space.allows(Block::of(SEGMENT_BASE + 4096), true) && space.allows(Block::of(64), true));
    }

    #[test]
    fn data_goes_to_the_own_copy() {
        let (space, memory, _tags) = space(4096);
        let data = [1, 2, 3, 4, 5, 6, 7, 8];
        space.write(Block::of(SEGMENT_BASE + 64), &data);
        assert_eq!(space.read(Block::of(SEGMENT_BASE + 64)), data);
        assert_eq!(memory[7..17], [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
    }

    #[test]
    fn tags_of_a_larger_block_change_together() {
        let (space, _memory, tags) = space(4096);
        let space = space.with_partition(Partition::uniform(BlockSize::new(512).unwrap()));
        let block = space.block_of(SEGMENT_BASE + 512 + 500);
        assert_eq!((block.addr(), space.parts(block)), (SEGMENT_BASE + 512, 8));
        assert_eq!(space.after(block), Some(space.block_of(SEGMENT_BASE + 1024)));
        space.set_tag(block, Tag::ReadOnly);
        assert_eq!(
            (tags[7], &tags[8..16], tags[16]),
            (contract::TAG_INVALID, &[contract::TAG_READONLY; 8][..], contract::TAG_INVALID)
        );
    }

    #[test]
    #[should_panic(expected = "outside the segment")]
    fn addresses_outside_are_not_touched() {
        let (space, _memory, _tags) = space(4096);
        space.read(Block::of(SEGMENT_BASE + 4096));
    }

    #[test]
    #[should_panic(expected = "ends inside a block")]
    fn a_segment_holds_whole_blocks() {
        space(4096 + 64);
    }
}
