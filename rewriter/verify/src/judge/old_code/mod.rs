//! The old code: what stands there now, that each way into it leads to the new code, and that this is the same program.

pub(crate) mod comparison;
pub(crate) mod complete;
pub(crate) mod dynamic_symbols;
mod elsewhere;
pub(crate) mod evidence;
pub(crate) mod indirect;
pub(crate) mod leftover;
mod old_bytes;
pub(crate) mod original;
pub(crate) mod springboards;
