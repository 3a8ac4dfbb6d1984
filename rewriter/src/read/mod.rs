//! The file as the stages see it: segments, code sections, symbols, code pointers, frames.

pub mod attached;
pub mod eh_frame;
pub mod elf;
pub mod exports;
pub mod fde;
pub mod foreign;
pub mod frames;
pub mod identity;
pub mod image;
pub mod lsda;
pub mod pointers;
pub mod rewritten;
