//! `blizzard stress`.

pub(crate) mod check;
pub(crate) mod command;
pub(crate) mod log;
pub(crate) mod round;
