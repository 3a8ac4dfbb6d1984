//! Code: what is found and moved, and what it does at its new places.

pub mod audited;
pub mod constants;
pub mod guessed_code;
pub mod hot_paths;
pub mod jump_tables;
pub mod padding;
pub mod screens;
pub mod taken_traps;
pub mod unmoved;
