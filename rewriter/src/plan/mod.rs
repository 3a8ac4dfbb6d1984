//! Facts -> plan: what is inserted where, and why, as data.

pub mod across;
pub mod ahead;
pub mod checks;
pub mod collect;
pub mod copies;
pub mod decide;
pub mod keep;
pub mod merge;
pub mod polls;
pub mod strips;
