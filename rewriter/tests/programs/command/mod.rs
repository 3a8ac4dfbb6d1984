//! The executable `blizzard` as users meet it.

pub mod bad_input;
pub mod cli;
pub mod help;
pub mod overhead;
pub mod projects;
pub mod terminal;
