//! What users and tests are told of a rewrite: its audit, its inspection, its overhead.

pub mod audit;
pub mod inspect;
pub mod overhead;
