//! The system calls of the program and of its libraries.
//!
//! Purpose: every call passes here. Rewritten code enters the gate in place of each `syscall`; for what is not rewritten, Syscall User Dispatch turns each
//! `syscall` outside the runtime's text into SIGSYS, in runs of several nodes. The table says of each call what is done with it, the rest does it.
//! Input: the call's registers. Output: its result, or changed registers.
//!
//! | folder | what |
//! |---|---|
//! | [`table`] | a row for each call: its memory, what the gate does with it, how it waits |
//! | [`call_memory`] | all of a call's memory accessible at once, on any node |
//! | [`execution`] | how a call is executed, and what may interrupt it |
//! | [`signals`] | the program's signals, put off and wrapped |
//! | [`gate`] | carries out what the table says |
//!
//! **Invariants**
//! * No number of a call is looked at outside the table.
//! * The list is in order: a module imports from those above it.
//!
//! Source: Linux `Documentation/admin-guide/syscall-user-dispatch.rst`; Reinhardt 1996, 4.2.4.

pub mod table;

pub mod call_memory;

pub mod execution;

pub mod signals;

pub mod gate;

#[cfg(test)]
pub(crate) mod tests;
