//! Blizzard's runtime. `DESIGN.md` has the picture.
#![cfg_attr(not(test), no_std)]

pub mod abi;
pub mod alloc;
pub mod buffer;
pub mod config;
pub mod entry;
pub mod homes;
#[cfg(any(feature = "freestanding", test))]
pub mod mem;
pub mod node;
pub mod print;
pub mod protocol;
pub mod region;
pub mod segment;
pub mod strings;
pub mod sys;
pub mod syscall_gate;
pub mod tags;
pub mod transport;
pub mod trap;
pub mod vsib;
