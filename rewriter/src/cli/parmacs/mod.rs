//! `blizzard parmacs`.

pub(crate) mod command;
pub(crate) mod m4;
