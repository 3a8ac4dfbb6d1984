//! Accesses to shared memory that faulted in code without tests.
//!
//! | file | what |
//! |---|---|
//! | [`refused`] | why an access is not carried out |
//! | [`table`] | a word for each form of instruction with a memory operand; made from a decoder's tables by a test |
//! | [`forms`] | finds the word, and what it says |
//! | [`decode`] | an instruction's length, operand and access |
//! | [`address`] | where the operand lies, by the registers of a context |
//! | [`slots`] | executable copies of instructions |
//! | [`strings`] | string instructions, in pieces |
//! | [`lanes`] | gathers and scatters |
//! | [`carry_out`] | the way in, and the way out of a slot |
//!
//! The list is in order: a module imports from those above it.

pub mod refused;

pub mod table;

pub mod forms;

pub mod decode;

pub mod address;

pub mod slots;

pub mod strings;

pub mod lanes;

pub mod carry_out;

#[cfg(test)]
mod tests;
