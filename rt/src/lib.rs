//! Blizzard's runtime. `DESIGN.md` has the picture.
#![cfg_attr(not(test), no_std)]

pub mod alloc;
pub mod apart;
pub mod api;
pub mod blocks;
pub mod buffer;
pub mod closure;
pub mod config;
pub mod entry;
pub mod forks;
pub mod heap;
pub mod homes;
pub mod instruments;
pub mod limits;
pub mod liveness;
#[cfg(any(feature = "freestanding", test))]
pub mod mem;
pub mod modules;
pub mod msg;
pub mod node;
pub mod partition;
pub mod places;
pub mod print;
pub mod region;
pub mod resume;
pub mod segment;
pub mod single;
pub mod stats;
pub mod strings;
pub mod sync;
pub mod sys;
pub mod syscall_gate;
pub mod tags;
pub mod tempest;
pub mod transport;
pub mod trap;
pub mod vsib;
