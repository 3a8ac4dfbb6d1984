//! The launcher: runs a program as N node processes and watches over them.
//!
//! Input: an executable, its arguments, [`options::LaunchOptions`]. Output: a [`launcher::Outcome`]. **Invariant**: nothing that a run has started is left
//! behind.

pub(crate) mod guard;
pub mod launcher;
pub mod leftovers;
pub mod options;
pub(crate) mod output;
pub(crate) mod region;
pub mod signals;
pub(crate) mod spawn;
pub(crate) mod stats;
pub(crate) mod supervise;
pub(crate) mod sys;
