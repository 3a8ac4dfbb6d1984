//! Graph -> facts: what holds of single instructions, and what holds on all ways through the program.
//!
//! Input: the graph, decoded instructions. Output: what each instruction reads, writes and accesses ([`kinds::Facts`]), what is live, which registers hold
//! stack addresses or numbers of 32 bits, what lies below rsp. **Invariant**: where something is not understood, the answer is the one that inserts more.

pub mod access;

pub mod effects;

pub(crate) mod rsp;

pub(crate) mod kinds;

pub(crate) mod held;

pub(crate) mod stack_depth;

pub(crate) mod stack_stores;

pub(crate) mod red_zone;

pub(crate) mod handwritten;

pub(crate) mod ipa_ra;

pub(crate) mod callees;

pub(crate) mod conventions;

pub(crate) mod liveness;
