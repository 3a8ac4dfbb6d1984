//! Inserted code: the only place that knows the bytes of checks, polls and counters.

pub mod asm;
pub mod block_table;
pub mod blocks;
pub mod screen;
pub mod sequences;
pub mod stack_test;
pub mod strip;
