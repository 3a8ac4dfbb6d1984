//! What every stage uses, and what knows of none.
//!
//! Input: none of the stages' data. Output: types and functions for errors, addresses, options, memory, files, and collections of millions.
//! **Invariant**: nothing here knows what a program or an instruction is.

pub mod addresses;
pub(crate) mod collections;
pub mod error;
pub mod memory;
pub mod options;
pub mod output_file;
