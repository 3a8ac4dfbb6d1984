//! `blizzard bench`.

pub mod command;
pub mod plans;
pub mod report;
