//! What is promised of the words that the nodes of a round race for.
//!
//! Input: how an allocation is made. Output: [`WordPromise`], which the checker holds each load to.

use blizzard_protocol::operation::Operation;

/// What the loads of a word may find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordPromise {
    /// The latest value.
    Sequential,
    /// What was flushed, or something later.
    AtFlushes,
    /// What was combined at the last barrier, or something later.
    AtBarriers(Reduced),
}

/// A word that nodes add to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduced {
    pub operation: Operation,
    /// A number of its block, which only words of this block have.
    pub block: u32,
    /// What a node has added may travel in pieces.
    pub in_pieces: bool,
}
