//! The M-Machine's memory-coherence manager: a second, independent invalidation protocol.
//!
//! Source: Gurevich, "The M-Machine Operating System", 1995, chapter 7.
//!
//! * [`steps`]: the two step functions, what they take from the source, and their full state/event tables. They are pure.
//! * [`vocabulary`]: their messages, events, bits and actions.
//! * [`directory`]: what a home knows about each block, sixteen bytes.
//! * `driver`: the protocol's state on a node. It performs the actions of the steps.

pub mod directory;

pub mod vocabulary;

pub mod steps;

pub mod driver;

#[cfg(feature = "planted")]
mod planted;

#[cfg(test)]
mod tests;
