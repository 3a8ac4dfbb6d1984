//! The command line: one file, or folder, for each subcommand.
//!
//! Input: the process's arguments. Output: an exit status, and what the command prints. [`command`] lists the subcommands and runs one.
//! **Invariant**: errors go to standard error with `caused by:` and `help:` lines; the exit status says the same.

pub(crate) mod shared;

pub(crate) mod make;

pub(crate) mod itself;

pub(crate) mod rewrite;

pub(crate) mod run;

pub(crate) mod verify;

pub(crate) mod inspect;

pub(crate) mod overhead;

pub(crate) mod parmacs;

pub(crate) mod demo;

pub(crate) mod stress;

pub mod bench;

pub mod command;
