//! Plan -> the output file.

pub mod debug;
pub mod file;
pub mod frames;
pub mod headers;
pub mod new_addresses;
pub mod new_code;
pub mod notes;
pub mod old_code;
pub mod output;
pub mod runtime_blob;
pub mod symbols;
pub mod tables;
