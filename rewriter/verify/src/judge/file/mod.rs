//! Headers, notes, module info, runtime and restart table.

pub(crate) mod headers;
pub(crate) mod info;
pub(crate) mod notes;
pub(crate) mod restarts;
pub(crate) mod runtime;
