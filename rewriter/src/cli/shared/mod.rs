//! What several commands do.

pub(crate) mod arguments;
pub(crate) mod compiler;
pub(crate) mod debug_file;
pub(crate) mod input;
pub(crate) mod libraries;
pub(crate) mod print;
pub(crate) mod scratch;
pub(crate) mod workload;
