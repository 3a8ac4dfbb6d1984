//! The launcher: runs a program as N node processes and watches over them.
//!
//! Input: an executable, its arguments, [`options::LaunchOptions`]. Output: a [`launcher::RunOutcome`]. **Invariant**: nothing that a run has started is left
//! behind.

pub mod options;

pub(crate) mod sys;

pub mod signals;

pub mod leftovers;

pub(crate) mod output;

pub mod region;

pub(crate) mod gdb;

pub(crate) mod spawn;

pub mod crashes;

pub(crate) mod guard;

pub mod watching;

pub mod launcher;

pub mod hosts;

pub(crate) mod stats;
