//! Graph -> facts: what instructions read, write and access, what is live, what holds stack addresses.

pub mod access;
pub mod callees;
pub mod conventions;
pub mod dwords;
pub mod effects;
pub mod handwritten;
pub mod ipa_ra;
pub mod kinds;
pub mod liveness;
pub mod red_zone;
pub mod rsp;
pub mod stack;
pub mod stack_depth;

pub mod stack_stores;
