//! The command line: one file for each subcommand.

pub mod bench;
pub mod cache;
pub mod command;
pub mod config;
pub mod demo;
pub mod inspect;
pub mod overhead;
pub mod parmacs;
pub mod rewrite;
pub mod run;
pub mod shared;
pub mod stress;
pub mod verify;
