//! Blizzard's runtime: a freestanding program that is linked into every rewritten one. `DESIGN.md` has the picture.
//!
//! | folder | what |
//! |---|---|
//! | [`kernel`] | system calls, printing, memory of the runtime's own, limits |
//! | [`memory`] | the region of the run; the segment, its tags, its arenas and homes |
//! | [`transport`] | messages between nodes: the interface, the rings, waiting; who takes part in the run |
//! | [`messages`] | the table of messages, and the check that stands before belief |
//! | [`node`] | a node of a run: accesses, messages, waiting; the coherence engine's port |
//! | [`sync`] | barriers, locks, events, counters, reductions |
//! | [`shared_memory`] | what `blizzard.h` offers a program: allocation and the calls |
//! | [`tempest`] | what `tempest.h` offers |
//! | [`libraries`] | rewritten files: their table, the cache, the names of places in their code |
//! | [`gates`] | the ways in from rewritten code: misses, polls, strings, gathers, traps |
//! | [`system_calls`] | the gate of system calls, and its table |
//! | [`start`] | how the runtime gets in first |
#![cfg_attr(not(test), no_std)]

pub mod kernel;

pub mod memory;

pub mod transport;

pub mod messages;

pub mod node;

pub mod sync;

pub mod shared_memory;

pub mod tempest;

pub mod libraries;

pub mod gates;

pub mod system_calls;

pub mod start;
