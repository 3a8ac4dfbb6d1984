//! The file as the stages see it.
//!
//! Input: the bytes of a file. Output: an [`image::Image`] (segments, code sections, symbols, code pointers) and the frames of its functions
//! ([`frames::FrameInfo`]); or what the file is instead of a program. **Invariant**: nothing of the file is believed; it is checked here, once.

pub mod image;

pub(crate) mod eh_frame;

pub(crate) mod fde;

pub(crate) mod lsda;

pub(crate) mod frames;

pub(crate) mod pointers;

pub(crate) mod exports;

pub(crate) mod identity;

pub(crate) mod foreign;

pub(crate) mod attached;

pub mod elf;

pub mod rewritten;

pub mod accesses;

pub mod old_places;
