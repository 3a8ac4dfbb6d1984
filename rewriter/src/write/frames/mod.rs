//! Unwind tables for relocated code: `.eh_frame`, `.eh_frame_hdr` and `.gcc_except_table`.
//!
//! Purpose: the unwinder (libgcc, LLVM libunwind, gdb) and the language personalities see return addresses in new
//! code, so they need tables that describe it. Data stays where it is, so only code addresses change.
//!
//! Input: the original `.eh_frame` and the file image behind it ([`crate::read::eh_frame::FrameInput`]); where each old
//! instruction went ([`pieces::CodeMap`]). Output: [`build::NewFrames`].
//!
//! Invariants:
//! * a row that begins at old address L begins at the new address of L's instruction, inserted checks included:
//!   inserted code runs in the state of the instruction that it precedes, save where it moves rsp ([`pieces::StackMove`]);
//! * an old call site covers the new code of the same instructions, and no other: a personality treats addresses
//!   without a call site differently from those with an empty one;
//! * nothing of the input is believed: every malformed record is an error with its address, never a panic.
//!
//! Source: System V psABI for x86-64 section 4.2.4 and DWARF 5 section 6.4 (frames), Linux Standard Base 5.0 section 10.6
//! (`.eh_frame`, `.eh_frame_hdr`), Itanium C++ ABI "Exception Handling Tables" (LSDA).

pub(crate) mod cfi;

pub(crate) mod pieces;

pub(crate) mod lsda_write;

pub(crate) mod eh_frame_hdr;

pub(crate) mod build;

pub(crate) mod debug_frame;

#[cfg(test)]
mod tests;
