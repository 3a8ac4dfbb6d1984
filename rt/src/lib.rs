//! Blizzard's runtime. `DESIGN.md` has the picture.
#![cfg_attr(not(test), no_std)]

pub mod abi;
pub mod protocol;
