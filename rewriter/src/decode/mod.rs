//! Image -> instructions: what is code, and what is not.

pub mod classify;
pub mod evidence;
pub mod explore;
pub mod gaps;
pub mod insn;
pub mod insns;
pub mod list;
pub mod marks;
pub mod reader;
pub mod regs;
pub mod skeleton;
pub mod starts;
pub mod sums;
