//! `blizzard bench`.

pub(crate) mod command;
pub(crate) mod plans;
pub(crate) mod report;
