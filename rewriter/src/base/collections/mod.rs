//! Collections for what a module has millions of: instructions, blocks, edges.

pub(crate) mod compact_ids;
pub(crate) mod compact_offsets;
pub(crate) mod grouped;
pub(crate) mod ranked_bits;
pub(crate) mod union_find;
pub(crate) mod worklist;
