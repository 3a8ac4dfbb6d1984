//! Access tags of the segment's blocks, and the node's own copies of them.
//!
//! Purpose: [`Space`] is one node's view of the segment: where its copy and its tags lie. In a program both are at the addresses of
//! [`blizzard_contract`]; a test has several nodes in one process, each with its own. Input and output: addresses of the segment, as
//! programs use them on every node.
//! **Invariants**: only the node's own thread changes its tags (design section 5, atomicity); every method panics on an address
//! outside the segment instead of touching other memory, so callers check addresses that come from messages first.

use crate::kernel::sys;
use crate::memory::partition::{BlockSize, Partition};
use blizzard_contract::{self as contract, BLOCK_BYTES, BLOCK_SHIFT, SEGMENT_BASE};
use blizzard_protocol::ids::{BLOCK_WORDS, Block};
use blizzard_protocol::tag::Tag;
use core::sync::atomic::{AtomicU8, Ordering};

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
pub struct Space {
    /// Where the copy of address `SEGMENT_BASE` lies.
    memory: u64,
    /// Where the tag of address `SEGMENT_BASE` lies.
    tags: u64,
    bytes: u64,
    /// Says by address how many bytes change hands together.
    partition: Partition,
}

impl Space {
    /// A view of mapped memory.
    ///
    /// # Safety
    /// `bytes` bytes at `memory` and `bytes / 64` bytes at `tags` are mapped, readable and writable as long as the view is used, and
    /// used by this node alone.
    pub const unsafe fn new(memory: u64, tags: u64, bytes: u64) -> Space {
        Space { memory, tags, bytes, partition: Partition::uniform(BlockSize::MIN) }
    }

    /// The view that the program has.
    ///
    /// # Safety
    /// [`crate::memory::segment`] has mapped a segment of `bytes` bytes and the tag table.
    pub const unsafe fn program(bytes: u64) -> Space {
        Space {
            memory: SEGMENT_BASE,
            tags: contract::TAG_TABLE_BASE + (SEGMENT_BASE >> BLOCK_SHIFT),
            bytes,
            partition: Partition::uniform(BlockSize::MIN),
        }
    }

    /// The same view with blocks as in that partition. Tags stay per minimum block; all those of a block are the same.
    #[must_use]
    pub const fn with_partition(self, partition: Partition) -> Space {
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

    /// Whether the segment holds `addr`.
    #[inline]
    pub const fn contains(&self, addr: u64) -> bool {
        addr >= SEGMENT_BASE && addr - SEGMENT_BASE < self.bytes
    }

    #[inline]
    fn offset(&self, block: Block) -> u64 {
        if !self.contains(block.addr()) {
            refuse_outside(block.addr());
        }
        block.addr() - SEGMENT_BASE
    }

    /// Number of the block, counted from the segment's start.
    #[inline]
    pub fn number(&self, block: Block) -> u64 {
        self.offset(block) >> BLOCK_SHIFT
    }

    #[inline]
    fn tag_cell(&self, block: Block) -> &AtomicU8 {
        // SAFETY: inside the tags that the creator vouched for.
        unsafe { AtomicU8::from_ptr((self.tags + self.number(block)) as *mut u8) }
    }

    /// The tag; `None` when the byte is no tag, which means that the table was overwritten.
    #[inline]
    pub fn tag(&self, block: Block) -> Option<Tag> {
        Tag::from_byte(self.tag_cell(block).load(Ordering::Relaxed))
    }

    /// Sets the tags of a block. Relaxed: the program's checks run on the same thread.
    pub fn set_tag(&self, block: Block, tag: Tag) {
        self.set_tags(block, self.block_bytes(block.addr()), tag);
    }

    /// [`Space::set_tag`] for who knows the block's size.
    #[inline]
    pub fn set_tags(&self, block: Block, bytes: u64, tag: Tag) {
        if block.addr() & (bytes - 1) != 0 {
            refuse_inside(block.addr());
        }
        self.tag_cell(block).store(tag.byte(), Ordering::Relaxed);
        for part in 1..bytes / BLOCK_BYTES {
            self.tag_cell(Block::of(block.addr() + part * BLOCK_BYTES)).store(tag.byte(), Ordering::Relaxed);
        }
    }

    /// Whether the block's tag allows the access now. Outside the segment everything is allowed.
    #[inline]
    pub fn allows(&self, block: Block, store: bool) -> bool {
        if !self.contains(block.addr()) {
            return true;
        }
        let forbidden = if store { contract::TAG_NO_STORE } else { contract::TAG_NO_LOAD };
        self.tag_cell(block).load(Ordering::Relaxed) & forbidden == 0
    }

    /// Where the node's own copy of `addr` lies; `addr` must be in the segment.
    pub fn local(&self, addr: u64) -> *mut u8 {
        assert!(self.contains(addr), "{addr:#x} is outside the segment");
        (self.memory + (addr - SEGMENT_BASE)) as *mut u8
    }

    /// The data of a minimum block in the node's own copy.
    #[inline]
    pub fn read(&self, block: Block) -> [u64; BLOCK_WORDS] {
        let from = (self.memory + self.offset(block)) as *const u64;
        // Word by word, as rings are written: wider loads from words that were just stored would have to wait for the stores.
        // SAFETY: a whole aligned block inside the copy; the program's thread is inside the runtime.
        core::array::from_fn(|word| unsafe { from.add(word).read_volatile() })
    }

    /// Gives the memory of whole pages back to the kernel: they read as zero afterwards. Advice: a refusal costs memory only.
    pub fn discard(&self, addr: u64, bytes: u64) {
        let last = addr + bytes - 1;
        assert!(self.contains(addr) && self.contains(last), "{addr:#x} is outside the segment");
        // SAFETY: the node's own copy, private and anonymous; the caller has made all its blocks Invalid.
        let _ = unsafe { sys::madvise(self.local(addr) as u64, bytes, libc::MADV_DONTNEED) };
    }

    /// Replaces the data of a minimum block in the node's own copy.
    #[inline]
    pub fn write(&self, block: Block, data: &[u64; BLOCK_WORDS]) {
        let to = (self.memory + self.offset(block)) as *mut u64;
        for (word, &value) in data.iter().enumerate() {
            // SAFETY: as in `read`.
            unsafe { to.add(word).write_volatile(value) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
