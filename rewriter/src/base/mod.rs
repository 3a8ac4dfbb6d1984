//! What every stage uses and what knows of none: errors, addresses, options, files, collections.

pub mod collections;
pub mod error;
pub mod ids;
pub mod memory;
pub mod options;
pub mod sink;
