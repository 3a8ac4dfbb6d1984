//! Tests of several stages together.

mod own;
pub(crate) mod passes;
