//! Blizzard: static rewriting of x86-64 Linux programs for fine-grain distributed shared memory.
//!
//! Input: an executable or a library, as its compiler made it. Output: the same program with a check in front of each access that may be to shared
//! memory, a poll in each loop, and the runtime. `DESIGN.md` says why it is done so.
//!
//! # What happens to a program
//!
//! | stage | what it does |
//! |---|---|
//! | [`read`] | reads the file: segments, code, symbols, code pointers, frames |
//! | [`decode`] | finds all code and only code, and decodes it |
//! | [`graph`] | finds basic blocks, jump tables, calls that do not return, and which addresses code may compute |
//! | [`facts`] | derives what each instruction accesses, which registers are live, which hold stack addresses, what the red zone holds |
//! | [`plan`] | decides what is inserted where: checks, polls, loops that test once for several iterations |
//! | [`insert`] | knows the bytes of what is inserted |
//! | [`write`](mod@write) | emits the new code, gives it addresses, and writes the file with its tables, frames and debug information |
//!
//! [`pipeline`] runs them; only [`graph`] and [`facts`] go to and fro. Each gives the memory of its data back when the last reader is done.
//!
//! # What surrounds the stages
//!
//! | folder | what it does |
//! |---|---|
//! | [`base`] | what all stages use: errors, addresses, options, files, collections |
//! | [`store`] | keeps rewritten programs and libraries on disk, and finds the libraries of a program |
//! | [`launch`] | starts a program's nodes and watches over them |
//! | [`reports`] | audits an output, inspects a program, measures what checks cost |
//! | [`cli`] | the command line, one file for each subcommand |
//!
//! **Invariant:** a module imports what stands above it: folders in the list below, siblings in the list of their folder. There are no circles.
//! `tests/layers.rs` of the crate holds this, so the empty lines between the modules stay: `rustfmt` would sort them.
#![deny(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

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
