//! Fuzz targets as plain functions of bytes: `tests/` runs them shortly, `fuzz/` at length.
//!
//! * [`elf`]: any bytes as the input of a rewrite.
//! * [`sequence`]: random instructions, run original and rewritten from the same state ([`machine`]), all registers, flags and
//!   memory compared ([`compare`]); the output audited ([`audited`]).
//! * [`steps`]: the same, interrupted by a signal at each instruction.

pub mod audited;
pub mod compare;
pub mod elf;
pub mod instruction;
pub mod machine;
pub mod sequence;
pub mod steps;
