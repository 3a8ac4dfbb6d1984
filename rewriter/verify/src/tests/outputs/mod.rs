//! The audit against outputs of the rewriter, with faults planted into them.

mod bounds;
mod complete;
mod file;
mod old_data;
mod planted;
mod probes;
mod single_bytes;
pub mod systematic;
pub mod unwinding;
