//! The new code: emitted, laid out, filled in.
//!
//! Input: the plan. Output: [`layout::NewCode`] and where each instruction has got to ([`layout::PlacedCode`]).
//! **Invariant**: the main run of instructions keeps its order.

pub(crate) mod linkage;

pub(crate) mod script;

pub(crate) mod versions;

pub(crate) mod emit;

pub(crate) mod layout;

pub(crate) mod hot_parts;
