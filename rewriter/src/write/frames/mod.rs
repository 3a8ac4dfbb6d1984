//! Unwind tables of the new code.

pub mod build;
pub mod cfi;
pub mod debug;
pub mod frames;
pub mod hdr;
pub mod lsda_write;
pub mod pieces;

#[cfg(test)]
mod tests;
