//! `blizzard parmacs`.

pub mod command;
pub mod m4;
