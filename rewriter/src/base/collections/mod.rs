//! Collections for what a module has millions of: instructions, blocks, edges.

pub mod compact_ids;
pub mod compact_offsets;
pub mod grouped;
pub mod ranked_bits;
pub mod union_find;
pub mod worklist;
