//! Instructions -> control-flow graph.
//!
//! Input: decoded instructions, frames. Output: basic blocks and their edges ([`cfg::Cfg`]), jump tables, calls that return, and the addresses that code
//! may compute. **Invariant**: each edge that the processor can take is in the graph, or its source is listed as leading to places unknown.

pub(crate) mod jump_table;

pub(crate) mod returns;

pub(crate) mod trace;

pub(crate) mod bounds;

pub(crate) mod table_search;

pub mod cfg;

pub(crate) mod labels;

pub(crate) mod computed_targets;

pub(crate) mod entries;
