//! Graph -> facts: what instructions read, write and access, what is live, what holds stack addresses.

pub mod access;
pub mod bare;
pub mod conventions;
pub mod effects;
pub mod kept;
pub mod kinds;
pub mod liveness;
pub mod named_calls;
pub mod narrow;
pub mod pushed;
pub mod red_zone;
pub mod rsp;
pub mod stack;

pub mod stack_stores;
