//! Collections for what a module has millions of: instructions, blocks, edges.
//!
//! Input: small numbers: indices, offsets, kinds. Output: lists and sets in a few bytes, or bits, each. **Invariant**: what is read is what was put in.

pub(crate) mod compact_ids;

pub(crate) mod compact_offsets;

pub(crate) mod ranked_bits;

pub(crate) mod grouped;

pub(crate) mod worklist;

pub(crate) mod union_find;
