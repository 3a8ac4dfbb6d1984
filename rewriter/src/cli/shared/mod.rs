//! What several commands do.

pub mod arguments;
pub mod compiler;
pub mod debug_file;
pub mod input;
pub mod libraries;
pub mod print;
pub mod scratch;
pub mod workload;
