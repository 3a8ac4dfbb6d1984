//! Image -> instructions: what is code, and what is not.
//!
//! Input: the image and its frames; targets that jump tables add. Output: [`insns::Insns`]. **Invariant**: bytes that are not known to be code stay as they
//! are; what may be both code and constants is listed, and refused.

pub mod insn;

pub(crate) mod regs;

pub(crate) mod skeleton;

pub(crate) mod classify;

pub(crate) mod marks;

pub(crate) mod insn_list;

pub(crate) mod address_index;

pub(crate) mod insns;

pub(crate) mod reader;

pub(crate) mod evidence;

pub(crate) mod address_sums;

pub(crate) mod explore;

pub(crate) mod gaps;

pub(crate) mod listing;
