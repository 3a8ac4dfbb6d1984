//! The launcher: runs a program as N node processes and watches over them.

pub mod guard;
pub mod launcher;
pub mod leftovers;
pub mod options;
pub mod output;
pub mod region;
pub mod signals;
pub mod spawn;
pub mod stats;
pub mod supervise;
pub mod sys;
