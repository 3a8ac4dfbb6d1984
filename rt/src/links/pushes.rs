//! What a flush pushes, many blocks to a message, through memory of both ends.
//!
//! Purpose: a flush sends thousands of blocks at once. The home writes them into its part of the region and tells each reader of a piece at a time. Input: blocks and
//! data. Output: at the reader, the same. Where no place is left, blocks go as messages of their own.
//!
//! ```text
//! behind the pieces of bulk data in the home's staging area, see crate::tempest::bulk: 16 places of 32 KiB, each of which is
//! 448 addresses (u64) | as many times 64 bytes
//! ```
//!
//! **Invariant**: a place is written again after its reader has answered the fence behind its piece: each flush begins with all places, and ends with fences.

use crate::kernel::own_memory::Slice;
use crate::kernel::sys;
use crate::memory::region::Region;
use crate::messages::area::PUSH_BLOCKS;
use blizzard_contract::{CONTEXT_BYTES, PUSH_PLACES, STAGE_PIECE_BYTES, STAGE_PLACES};
use blizzard_protocol::ids::{BLOCK_WORDS, Block, Data, NodeId};
use core::arch::x86_64::{_mm_sfence, _mm_stream_si64};

/// Blocks of one piece.
pub const PIECE_BLOCKS: u64 = PUSH_BLOCKS;
const ENTRY_BYTES: u64 = 8 + 8 * BLOCK_WORDS as u64;
const _: () = assert!(PIECE_BLOCKS * ENTRY_BYTES <= STAGE_PIECE_BYTES && PIECE_BLOCKS.is_multiple_of(8));

/// A piece: its place, and how many blocks it has.
#[derive(Clone, Copy)]
pub struct PushPiece {
    pub place: u64,
    pub blocks: u64,
}

impl PushPiece {
    pub const fn bytes(self) -> u64 {
        self.blocks * ENTRY_BYTES
    }
}

/// The pieces of the flush in progress.
pub struct Pushes {
    /// By node: the piece that blocks for it go into.
    open: Slice<Option<PushPiece>>,
    /// Places in use; all of them outside of flushes.
    used: u64,
}

impl Pushes {
    /// Of a run of so many nodes.
    pub fn new(nodes: u32) -> sys::Result<Pushes> {
        Ok(Pushes { open: Slice::new(nodes as usize, |_| None)?, used: PUSH_PLACES })
    }

    /// From here on pushes are collected.
    pub fn begin(&mut self) {
        self.used = 0;
    }

    /// No more blocks come.
    pub fn end(&mut self) {
        self.used = PUSH_PLACES;
    }

    /// The piece for a node that has no room for one more block.
    pub fn take_full(&mut self, to: NodeId) -> Option<PushPiece> {
        let is_full = self.open[to.index()].is_some_and(|piece| piece.blocks == PIECE_BLOCKS);
        if is_full { self.take(to) } else { None }
    }

    /// The piece for a node, which sees all of it when a message tells it.
    pub fn take(&mut self, to: NodeId) -> Option<PushPiece> {
        let piece = self.open[to.index()].take()?;
        // SAFETY: SSE is part of every x86-64 processor. What was written past the caches comes before the message.
        unsafe { _mm_sfence() };
        Some(piece)
    }

    /// Adds a block to what goes from this node to another one; false when there is no place.
    pub fn add(&mut self, region: &Region, [me, to]: [NodeId; 2], block: Block, data: &Data) -> bool {
        let used = self.used;
        let piece = match &mut self.open[to.index()] {
            Some(piece) => piece,
            None if used == PUSH_PLACES => return false,
            none => {
                self.used += 1;
                none.insert(PushPiece { place: used, blocks: 0 })
            }
        };
        let at = piece.blocks as usize;
        piece.blocks += 1;
        let words = place_of(region, me, piece.place);
        // SAFETY: inside the place, which nobody reads before its message comes; past the caches, since another processor reads it next.
        unsafe {
            _mm_stream_si64(words.add(at).cast(), block.addr() as i64);
            let to = words.add(PIECE_BLOCKS as usize + at * BLOCK_WORDS);
            for (word, &value) in data.iter().enumerate() {
                _mm_stream_si64(to.add(word).cast(), value as i64);
            }
        }
        true
    }
}

/// The words of a place of a node.
fn place_of(region: &Region, node: NodeId, place: u64) -> *mut u64 {
    assert!(place < PUSH_PLACES);
    let offset = CONTEXT_BYTES + (STAGE_PLACES + place) * STAGE_PIECE_BYTES;
    region.stage(node).wrapping_add(offset as usize).cast()
}

/// A block of a piece that a node has sent: its address, which may be anything, and its data.
pub fn read(region: &Region, from: NodeId, place: u64, at: u64) -> (u64, Data) {
    assert!(at < PIECE_BLOCKS);
    let words = place_of(region, from, place).cast_const();
    // SAFETY: inside the place; the peer may be faulty and write meanwhile: any value will do.
    unsafe {
        let data = words.add(PIECE_BLOCKS as usize + at as usize * BLOCK_WORDS);
        (words.add(at as usize).read_volatile(), core::array::from_fn(|word| data.add(word).read_volatile()))
    }
}
