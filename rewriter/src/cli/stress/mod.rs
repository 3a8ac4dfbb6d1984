//! `blizzard stress`: random races on the real runtime, checked for sequential consistency.
//!
//! Input: how many rounds, and what is fixed of them. Output: the first contradiction, with its logs. Only this command and its tests use what is here.

pub(crate) mod log;

pub(crate) mod promise;

pub(crate) mod violation;

pub(crate) mod check;

pub(crate) mod round;

pub(crate) mod command;
