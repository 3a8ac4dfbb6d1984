//! Blizzard: static rewriting of x86-64 Linux programs for fine-grain distributed shared memory.
//!
//! `DESIGN.md` describes the stages; [`pipeline`] is their list.
#![deny(unsafe_code)]

pub mod analysis;
pub mod ascending;
pub mod blocks;
pub mod cache;
pub mod cfg;
pub mod check;
pub mod cli;
pub mod closure;
pub mod disasm;
pub mod elf_write;
pub mod emit;
pub mod error;
pub mod ids;
pub mod image;
pub mod inspect;
pub mod inspection;
pub mod launch;
pub mod layout;
pub mod m4;
pub mod marker;
pub mod memory;
pub mod numbers;
pub mod optimise;
pub mod options;
pub mod overhead;
#[cfg(test)]
mod own_tests;
pub mod pipeline;
pub mod plan;
pub mod ranks;
pub mod rt_blob;
pub mod sink;
pub mod stress;
pub mod verify;
