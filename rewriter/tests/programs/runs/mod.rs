//! Runs of nodes: how they begin and end, and what programs may do in them.

pub mod attributes;
pub mod hints;
pub mod interpreters;
pub mod launch;
pub mod made_code;
pub mod promises;
pub mod rights;
pub mod stuck;
