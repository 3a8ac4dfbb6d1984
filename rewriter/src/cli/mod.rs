//! The command line: one file for each subcommand.

pub(crate) mod bench;
pub(crate) mod cache;
pub mod command;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod inspect;
pub(crate) mod overhead;
pub(crate) mod parmacs;
pub(crate) mod rewrite;
pub(crate) mod run;
pub(crate) mod shared;
pub(crate) mod stress;
pub(crate) mod verify;
