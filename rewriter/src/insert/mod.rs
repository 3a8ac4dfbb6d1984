//! Inserted code: the only place that knows the bytes of checks, polls and counters, as `SEQUENCES.md` lists them.
//!
//! Input: one instruction, what is live before it, and the planned [`crate::plan::decision::Decision`]. Output: bytes in the hot and the cold buffer of
//! [`code::EmittedCode`]. **Invariants**: outside a sequence no register, flag or byte of the red zone that is live is changed; a cold stub restores the
//! program's state, enters the gate, and goes on to the access.

pub(crate) mod asm;

pub(crate) mod block_table;

pub(crate) mod block_recorder;

pub(crate) mod code;

pub(crate) mod site;

pub(crate) mod stubs;

pub(crate) mod polls;

pub(crate) mod stack_test;

pub(crate) mod screen;

pub(crate) mod sequences;

pub(crate) mod guard;

pub(crate) mod instruments;

pub(crate) mod strip;
