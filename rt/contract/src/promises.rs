//! What a run with `--debug-protocols` keeps of accesses to memory whose protocol is not sequentially consistent.
//!
//! It lies in the shared region: a page with a [`BrokenPromise`], and for each node a [`StoreRecord`] for each word of the segment. Pages that nobody uses cost no
//! memory.

use crate::addresses::CONTEXT_BYTES;

/// Bytes that one record is about.
pub const PROMISE_WORD_BYTES: u64 = 8;

/// The store that an access should not have met. Written once, by the node that ends the run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenPromise {
    /// 0: no promise is broken.
    pub is_claimed: u64,
    /// The node that ends the run, and the other one, which has stored.
    pub by: u64,
    pub storer: u64,
    /// Where that store is in its process: behind the call by which its check entered the runtime, or behind the beginning of the instruction.
    pub place: u64,
}

/// The last store of a node to a word. Written by that node.
#[repr(C)]
pub struct StoreRecord {
    /// From bit 0 on a bit for each byte that it has stored since its last flush, from bit 8 on for those of them that an instruction has stored that
    /// is not atomic, and from [`STAMP_SHIFT`] on how many flushes there had been ([`SharedContext::flushes`](crate::SharedContext::flushes)); 0: none.
    pub stamp: u64,
    /// As [`BrokenPromise::place`].
    pub place: u64,
}

/// Bits of [`StoreRecord::stamp`] that are about bytes.
pub const STAMP_SHIFT: u32 = 2 * PROMISE_WORD_BYTES as u32;

/// Bytes of the records of one node.
pub const fn promise_records_bytes(segment_bytes: u64) -> u64 {
    segment_bytes / PROMISE_WORD_BYTES * size_of::<StoreRecord>() as u64
}

/// Bytes of all of it.
pub const fn promises_bytes(nodes: u32, segment_bytes: u64) -> u64 {
    CONTEXT_BYTES + nodes as u64 * promise_records_bytes(segment_bytes)
}

const _: () = assert!(size_of::<BrokenPromise>() <= CONTEXT_BYTES as usize);
