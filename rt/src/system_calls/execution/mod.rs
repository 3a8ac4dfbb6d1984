//! How a call is executed, and what may interrupt it.
//!
//! | file | what |
//! |---|---|
//! | [`signal_sets`] | the runtime's signals and all others |
//! | [`situation`] | several nodes, the thread of `tempest.h`, a child of `vfork` |
//! | [`given`] | what the kernel is given, and what the program gets back |
//! | [`put_off`] | signals that wait for a safe point |
//! | [`stubs`] | the instructions that make the program's calls |
//! | [`call`] | a call, and what becomes of it |
//! | [`runtime_text`] | where contexts rely on tags |
//! | [`masks`] | masks of calls that wait |
//! | [`transfers`] | the rest of a transfer |
//! | [`interruptions`] | calls that wait, and that a peer takes out of the kernel |
//!
//! The list is in order: a module imports from those above it.

pub mod signal_sets;

pub mod situation;

pub mod given;

pub mod put_off;

pub mod stubs;

pub mod call;

pub mod runtime_text;

pub mod masks;

pub mod transfers;

pub mod interruptions;
