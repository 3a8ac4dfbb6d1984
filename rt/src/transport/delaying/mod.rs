//! The transport of tests, within one process.
//!
//! Purpose: what a network may do and rings do not: from a seed, messages are delayed, those of different pairs overtake each other, and some are dropped to order.
//! All nodes run on one thread, so the same seed gives the same run. Input: a seed. Output: messages, late; or none.
//! [`network`] has what is under way, [`ends`] are what nodes see of it, [`schedule`] says which node goes on, each on a [`fiber`].

pub mod fiber;

pub mod network;

pub mod ends;

pub mod schedule;

#[cfg(test)]
mod tests;
