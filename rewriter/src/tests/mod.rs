//! Tests of several stages together.

mod decisions;
pub(crate) mod passes;
mod self_rewrite;
mod stubs;
