//! The file as the stages see it: segments, code sections, symbols, code pointers, frames.

pub mod attached;
pub mod exports;
pub mod fde;
pub mod foreign;
pub mod image;
pub mod lsda;
pub mod marker;
pub mod pointers;
