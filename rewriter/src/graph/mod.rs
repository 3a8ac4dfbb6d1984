//! Instructions -> control-flow graph: blocks, jump tables, calls that return, computed targets.

pub mod bounds;
pub mod cfg;
pub mod computed_targets;
pub mod entries;
pub mod jump_tables;
pub mod labels;
pub mod returns;
