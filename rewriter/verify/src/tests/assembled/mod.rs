//! The audit against modules assembled by hand.

mod accepted;
mod callers;
mod copies;
pub mod covered;
mod flow;
mod jump_tables;
mod mutations;
mod polls;
mod red_zone;
pub mod restarts;
mod screens;
mod stack_tests;
mod strips;
