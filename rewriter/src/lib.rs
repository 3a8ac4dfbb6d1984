//! Blizzard: static rewriting of x86-64 Linux programs for fine-grain distributed shared memory.
//!
//! `DESIGN.md` describes the stages; [`pipeline`] is their list.
#![deny(unsafe_code)]

pub mod base;

pub mod read;

pub mod decode;

pub mod graph;

pub mod facts;

pub mod plan;

pub mod insert;

pub mod write;

pub mod pipeline;

pub mod store;

pub mod launch;

pub mod reports;

pub mod cli;

#[cfg(test)]
mod tests;
