//! The new code: each access is checked or exempt, and inserted code does nothing else.

pub(crate) mod accesses;
pub(crate) mod copies;
pub(crate) mod covered;
pub(crate) mod landings;
pub(crate) mod liveness;
pub(crate) mod padding;
pub(crate) mod polls;
pub(crate) mod prover;
pub(crate) mod red_zone;
pub(crate) mod screens;
pub(crate) mod stack_tests;
pub(crate) mod syscalls;
