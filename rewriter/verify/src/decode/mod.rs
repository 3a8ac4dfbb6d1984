//! The new code as instructions: what each does to memory, registers, flags and control.
//!
//! Input: bytes of code. Output: [`decoder::Code`].

pub(crate) mod decoder;
pub(crate) mod effects;
pub(crate) mod insn;
pub(crate) mod newer;
pub(crate) mod raw;
