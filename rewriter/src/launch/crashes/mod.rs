//! Nodes that die: what the launcher sees of them.
//!
//! Input: processes that wait, and the records in their context pages. Output: [`crash::Crash`]es, with the calls that led there; core files.

pub(crate) mod process_memory;

pub mod allocations;

pub mod unwind;

pub(crate) mod core_files;

pub(crate) mod core_folder;

pub mod crash;
