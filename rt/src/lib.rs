//! Blizzard's runtime: a freestanding program that is linked into every rewritten one. `DESIGN.md` has the picture.
//!
//! | folder | what |
//! |---|---|
//! | [`kernel`] | system calls, printing, memory of the runtime's own, limits |
//! | [`memory`] | the region of the run and its hosts; the segment, its tags, its arenas and homes |
//! | [`transport`] | messages between nodes: the interface, the rings, waiting; who takes part in the run |
//! | [`messages`] | the kinds of messages, and the check that stands before belief |
//! | [`links`] | what a node is connected with; the coherence engine's port |
//! | [`sync`] | the state of barriers, locks, events, counters, reductions, and what messages change of it |
//! | [`node`] | a node of a run: accesses, messages, waiting; what programs call |
//! | [`libraries`] | rewritten files: their table, the cache, the names of places in their code |
//! | [`process`] | the node of this process, and the ways into it |
//! | [`tempest`] | what `tempest.h` offers |
//! | [`system_calls`] | the gate of system calls, and its table |
//! | [`gates`] | the ways in from the program: misses, polls, strings, gathers, traps, and `blizzard.h` |
//! | [`start`] | how the runtime gets in first |
#![cfg_attr(not(test), no_std)]
#![allow(clippy::module_inception, reason = "the main file of a folder has its name")]
#![allow(clippy::new_without_default, reason = "each state is made in one place")]

pub mod kernel;

pub mod memory;

pub mod transport;

pub mod messages;

pub mod links;

pub mod sync;

pub mod node;

pub mod libraries;

pub mod process;

pub mod tempest;

pub mod system_calls;

pub mod gates;

pub mod start;

#[cfg(test)]
mod tests;
