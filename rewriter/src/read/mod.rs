//! The file as the stages see it: segments, code sections, symbols, code pointers, frames.

pub(crate) mod attached;
pub(crate) mod eh_frame;
pub mod elf;
pub(crate) mod exports;
pub(crate) mod fde;
pub(crate) mod foreign;
pub(crate) mod frames;
pub(crate) mod identity;
pub mod image;
pub(crate) mod lsda;
pub(crate) mod pointers;
pub mod rewritten;
