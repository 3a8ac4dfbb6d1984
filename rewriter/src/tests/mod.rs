//! Tests of several stages together.

pub(crate) mod passes;
mod self_rewrite;
