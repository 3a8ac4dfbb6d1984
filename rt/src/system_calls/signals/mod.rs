//! The program's signals where they must not run anywhere, and the runtime's own.
//!
//! | file | what |
//! |---|---|
//! | [`actions`] | the actions as the program set them |
//! | [`dying`] | the launcher looks at a node that dies by a signal |
//! | [`alternate_stack`] | the alternate stack of a program that has none |
//! | [`own_sigtrap`] | the program's action for SIGTRAP, and the runtime's in front of it |
//! | [`sent`] | a SIGTRAP, SIGSEGV or the like that somebody has sent waits |
//! | [`safe_points`] | what was put off is let in |
//! | [`learnt`] | how often accesses of plain code have faulted |
//! | [`plain_again`] | from full code back to plain code |
//! | [`untested`] | accesses to shared memory that faulted because nothing had tested them |
//! | [`carried`] | accesses to shared memory in code without tests |
//! | [`memory_faults`] | SIGSEGV and SIGBUS as the program would see them without checks |
//! | [`called`] | the signal by which peers call this node |
//! | [`wrapper`] | the handler that stands in for each of the program's |
//! | [`calls`] | `rt_sigaction`, `rt_sigprocmask` |
//!
//! The list is in order: a module imports from those above it.

pub mod actions;

pub mod dying;

pub mod alternate_stack;

pub mod own_sigtrap;

pub mod sent;

pub mod safe_points;

pub mod learnt;

pub mod plain_again;

pub mod untested;

pub mod carried;

pub mod memory_faults;

pub mod called;

pub mod wrapper;

pub mod calls;
