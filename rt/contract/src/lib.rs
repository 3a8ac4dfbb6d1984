//! The contract between rewritten code, the runtime, the launcher, the audit and client libraries.
//!
//! Every address, offset, bit, structure and form of a table that two of those parties must agree on stands here and only here. Nothing here executes,
//! but for the readers of the two tables, which the runtime and the audit share. **Invariant**: a module imports those above its own in the list below.
#![cfg_attr(not(test), no_std)]

mod listed;

mod addresses;

mod limits;

mod gates;

mod module;

pub mod restarts;

pub mod trap_map;

mod alloc_rules;

mod block_counts;

mod context;

mod promises;

mod run;

pub mod tempest;

mod client;

pub use addresses::*;
pub use alloc_rules::*;
pub use block_counts::*;
pub use client::*;
pub use context::*;
pub use gates::*;
pub use limits::*;
pub use module::*;
pub use promises::*;
pub use run::*;
