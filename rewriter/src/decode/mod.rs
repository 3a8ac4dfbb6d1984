//! Image -> instructions: what is code, and what is not.

pub mod address_index;
pub mod address_sums;
pub mod classify;
pub mod evidence;
pub mod explore;
pub mod gaps;
pub mod insn;
pub mod insn_list;
pub mod insns;
pub mod marks;
pub mod reader;
pub mod regs;
pub mod skeleton;
