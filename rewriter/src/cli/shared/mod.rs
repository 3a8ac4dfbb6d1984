//! What several commands do.

pub mod compiler;
pub mod debug_file;
pub mod input;
pub mod libraries;
pub mod scratch;
pub mod workload;
