//! Collections for what a module has millions of: instructions, blocks, edges.

pub mod ascending;
pub mod grouped;
pub mod numbers;
pub mod ranks;
pub mod union_find;
pub mod worklist;
