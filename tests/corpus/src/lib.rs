//! Real programs of a Debian system, rewritten and compared with the originals.
//!
//! [`list`] says what is run (`programs.toml`), [`inputs`] makes what it works on, [`inside`] runs a command shut in,
//! [`trial`] runs one program original and rewritten, [`compare`] tells behaviours apart, [`sweep`] rewrites whole
//! folders without running anything, [`mutate`] changes bytes of outputs and asks the audit, [`report`] writes tables and `RESULTS.md`.
#![forbid(unsafe_code)]

pub mod cli;
pub mod compare;
pub mod inputs;
pub mod inside;
pub mod list;
pub mod mutate;
pub mod one;
pub mod report;
pub mod sweep;
pub mod trial;
