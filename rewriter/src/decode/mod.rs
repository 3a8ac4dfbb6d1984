//! Image -> instructions: what is code, and what is not.

pub(crate) mod address_index;
pub(crate) mod address_sums;
pub(crate) mod classify;
pub(crate) mod evidence;
pub(crate) mod explore;
pub(crate) mod gaps;
pub mod insn;
pub(crate) mod insn_list;
pub(crate) mod insns;
pub(crate) mod marks;
pub(crate) mod reader;
pub(crate) mod regs;
pub(crate) mod skeleton;
