//! Inserted code: the only place that knows the bytes of checks, polls and counters, as `DESIGN.md` lists them.
//!
//! Input: one instruction, what is live before it, and the planned [`crate::plan::decide::Action`]. Output: bytes in the hot and the cold buffer of
//! [`code::Code`]. **Invariants**: outside a sequence no register, flag or byte of the red zone that is live is changed; a cold stub restores the
//! program's state, enters the gate, and goes on to the access.

pub mod asm;
pub mod block_recorder;
pub mod block_table;
pub mod code;
pub mod polls;
pub mod screen;
pub mod sequences;
pub mod site;
pub mod site_class;
pub mod stack_test;
pub mod strip;
pub mod stubs;
