//! The contract between rewritten code, the runtime, the launcher, the audit and client libraries.
//!
//! Every address, offset, bit, structure and form of a table that two of those parties must agree on stands here and only here. Nothing here executes,
//! but for the readers of the two tables, which the runtime and the audit share.
#![cfg_attr(not(test), no_std)]

mod addresses;
mod alloc_rules;
mod gates;
mod listed;
mod module;
pub mod restarts;
pub mod trap_map;

mod context;
pub mod tempest;

mod block_counts;
mod client;
mod promises;
mod run;

pub use addresses::*;
pub use alloc_rules::*;
pub use block_counts::*;
pub use client::*;
pub use context::*;
pub use gates::*;
pub use module::*;
pub use promises::*;
pub use run::*;
