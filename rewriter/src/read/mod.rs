//! The file as the stages see it.
//!
//! Input: the bytes of a file. Output: an [`image::Image`] (segments, code sections, symbols, code pointers) and the frames of its functions
//! ([`frames::FrameInfo`]); or what the file is instead of a program. **Invariant**: nothing of the file is believed; it is checked here, once.

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
