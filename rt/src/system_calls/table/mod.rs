//! The table of calls: a row for each, which says which memory it touches, what the gate does with it, and how it waits.
//!
//! | file | what |
//! |---|---|
//! | [`row`] | the columns |
//! | [`commands`] | the commands of `ioctl`, `fcntl`, `prctl` and the like |
//! | [`calls`] | the rows: every call of x86-64 Linux |
//! | [`copies`] | copies of structures, with the kernel's addresses |
//! | [`visitor`] | reads the program's structures and names ranges |
//! | [`by_command`], [`structures`] | arguments by command; structures that lead to more memory |
//! | [`memory`] | which memory a call touches |
//! | [`taken`] | with one node: which calls come to the gate |
//!
//! `rt/SYSCALLS.md` is generated from it. The list is in order: a module imports from those above it.

pub mod row;

pub mod commands;

pub mod calls;

pub mod copies;

pub mod visitor;

pub mod by_command;

pub mod structures;

pub mod memory;

pub mod taken;

#[cfg(test)]
mod tests;
