//! What every stage uses and what knows of none: errors, addresses, options, files, collections.

pub mod addresses;
pub(crate) mod collections;
pub mod error;
pub mod memory;
pub mod options;
pub mod output_file;
