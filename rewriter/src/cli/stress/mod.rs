//! `blizzard stress`.

pub mod check;
pub mod command;
pub mod log;
pub mod round;
