//! Writing the output file.

pub mod frames;
