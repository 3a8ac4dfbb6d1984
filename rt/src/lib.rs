//! Blizzard's runtime. `DESIGN.md` has the picture.
#![cfg_attr(not(test), no_std)]

pub mod abi;
#[cfg(feature = "freestanding")]
pub mod mem;
pub mod print;
pub mod protocol;
pub mod sys;
