//! Control flow of the new code.
//!
//! Input: decoded text, sites, places that may be entered from outside. Output: [`blocks::Graph`].

pub(crate) mod blocks;
pub(crate) mod bounds;
pub(crate) mod returns;
pub(crate) mod tables;
pub(crate) mod trace;
