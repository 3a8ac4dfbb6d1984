//! The new code as instructions: what each does to memory, registers, flags and control.
//!
//! Input: bytes of code. Output: [`decoder::Code`].

pub(crate) mod beyond_capstone;
pub(crate) mod decoder;
pub(crate) mod effects;
pub(crate) mod insn;
pub(crate) mod raw;
