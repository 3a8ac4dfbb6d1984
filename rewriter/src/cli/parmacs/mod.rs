//! `blizzard parmacs`: expands the PARMACS macros, where m4 is not installed.
//!
//! Input: a source file with macros. Output: the expanded text, byte for byte that of GNU m4 but for `#line`.

pub(crate) mod lines;

pub(crate) mod m4;

pub(crate) mod command;
