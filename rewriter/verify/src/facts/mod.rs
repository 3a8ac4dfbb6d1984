//! What holds on all ways through the program: by data flow over the graph.
//!
//! Input: the graph, decoded text, sites. Output: tables by block. Nothing is found open here; the judges ask.

pub(crate) mod callees;
pub(crate) mod dwords;
pub(crate) mod exempt;
pub(crate) mod ipa_ra;
pub(crate) mod live;
pub(crate) mod stack;
pub(crate) mod stack_depth;
pub(crate) mod stack_stores;
