//! Graph -> facts: what instructions read, write and access, what is live, what holds stack addresses.

pub mod access;
pub(crate) mod callees;
pub(crate) mod conventions;
pub(crate) mod dwords;
pub mod effects;
pub(crate) mod handwritten;
pub(crate) mod ipa_ra;
pub(crate) mod kinds;
pub(crate) mod liveness;
pub(crate) mod red_zone;
pub(crate) mod rsp;
pub(crate) mod stack;
pub(crate) mod stack_depth;

pub(crate) mod stack_stores;
