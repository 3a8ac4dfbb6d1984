//! What users and tests are told of a rewrite: its audit, its inspection, its overhead.
//!
//! Input: programs, original or rewritten. Output: data, as text, JSON or HTML. **Invariant**: no report changes the program it is about.

pub mod audit;

pub mod inspect;

pub mod decisions;

pub(crate) mod debug_file;

pub mod overhead;

pub(crate) mod places;

pub(crate) mod stuck;

pub(crate) mod traps;

pub(crate) mod crash;

pub(crate) mod core_file;

pub mod learnt;
