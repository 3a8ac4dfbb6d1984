//! What programs call that needs the node: each may wait.

pub mod allocation;
pub mod collectives;
pub mod creation;
pub mod groups;
pub mod locks;
pub mod objects;
pub mod remote;
pub mod slots;
