//! The new code: emitted, laid out, filled in.

pub mod emit;
pub mod layout;
pub mod script;
