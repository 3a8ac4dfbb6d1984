//! Blizzard's runtime. `DESIGN.md` has the picture.
#![cfg_attr(not(test), no_std)]

pub mod abi;
pub mod entry;
#[cfg(any(feature = "freestanding", test))]
pub mod mem;
pub mod node;
pub mod print;
pub mod protocol;
pub mod strings;
pub mod sys;
pub mod syscall_gate;
pub mod trap;
pub mod vsib;
