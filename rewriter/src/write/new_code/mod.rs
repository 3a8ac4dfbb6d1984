//! The new code: emitted, laid out, filled in.

pub(crate) mod emit;
pub(crate) mod layout;
pub(crate) mod script;
