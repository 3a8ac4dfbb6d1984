//! Blizzard: static rewriting of x86-64 Linux programs for fine-grain distributed shared memory.
//!
//! `DESIGN.md` describes the stages; [`pipeline`] is their list.
#![deny(unsafe_code)]

pub mod elf_write;
pub mod error;
pub mod ids;
pub mod options;
pub mod pipeline;
