//! Instructions -> control-flow graph: blocks, jump tables, calls that return, computed targets.

pub(crate) mod bounds;
pub mod cfg;
pub(crate) mod computed_targets;
pub(crate) mod entries;
pub(crate) mod jump_tables;
pub(crate) mod labels;
pub(crate) mod returns;
