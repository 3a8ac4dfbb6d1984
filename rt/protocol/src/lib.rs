//! Coherence: an engine, and the protocols that it runs.
//!
//! The crate decides what a node does when an access misses, and when a message about a block arrives. It touches no memory, tag or ring by itself: all that
//! goes through a [`port`]. The runtime gives it one, and so do tests and models; they run the same functions.
//!
//! # How a miss goes through the crate
//!
//! 1. [`engine::access::Engine::acquire`] counts it, makes room for its page, and asks the protocol of its block for it.
//! 2. The protocol steps: [`protocols::stache`] and [`protocols::mcm`] have pure step functions, which return actions; a driver performs them on the port. A message to the home goes out.
//! 3. The caller waits. What arrives it gives to [`engine::access::Engine::message`], which puts it aside if its block is pinned, and hands it to the protocol otherwise.
//! 4. At the home, the same way leads to a step that sends the answer.
//! 5. The answer's step copies data in, raises the tag, and grants. The caller's wait is over ([`engine::access::Engine::is_granted`]).
//!
//! # Where a new protocol goes
//!
//! Into a folder of its own in [`protocols`], with a type that implements [`protocol::seam::Protocol`] and a table of its messages (`MESSAGES`); a `pub mod` line
//! there; and a line in [`list`]. [`protocols::home`] is the smallest. At most eight protocols fit, of fifteen messages each; the eighth has thirteen. A
//! protocol that differs from stache in few steps implements [`protocols::stache::driver::StacheRules`], as [`protocols::update`] does.
//!
//! # Layers
//!
//! A module imports from those above its own in this list.
#![cfg_attr(not(test), no_std)]

pub mod storage;

pub mod ids;

pub mod tag;

pub mod operation;

pub mod bugs;

pub mod port;

#[cfg(feature = "planted")]
pub mod planted;

pub mod protocol;

pub mod protocols;

pub mod list;

pub mod engine;

#[cfg(test)]
mod tests;
