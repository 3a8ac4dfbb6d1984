//! What every stage uses, and what knows of none.
//!
//! Input: none of the stages' data. Output: types and functions for errors, addresses, options, memory, files, and collections of millions.
//! **Invariant**: nothing here knows what a program or an instruction is.

pub mod addresses;

pub mod error;

pub mod limits;

pub mod messages;

pub mod progress;

pub mod options;

pub mod learnt;

pub mod memory;

pub mod output_file;

pub(crate) mod collections;
