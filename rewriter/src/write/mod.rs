//! Plan -> the output file.

pub(crate) mod debug;
pub mod file;
pub(crate) mod frames;
pub(crate) mod headers;
pub(crate) mod new_addresses;
pub(crate) mod new_code;
pub(crate) mod notes;
pub(crate) mod old_code;
pub(crate) mod output;
pub mod runtime_blob;
pub(crate) mod symbols;
pub(crate) mod tables;
