//! Rewritten files: which are mapped, which stand for what a program opens, and what their code is called.

pub mod block_counters;

pub mod modules;

pub mod debugger_list;

pub mod places;

pub mod closure;
