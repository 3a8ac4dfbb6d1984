//! The gate: carries out what the row of a call says.
//!
//! | file | what |
//! |---|---|
//! | [`frame`] | the call in the registers that the gate saved |
//! | [`loading`] | calls by which code comes in |
//! | [`own_file`] | what the program is told of its own file |
//! | [`caller`] | where in the program a call comes from |
//! | [`own_memory`] | the call's memory is made accessible |
//! | [`shared_futex`] | futexes on shared memory |
//! | [`processes`] | calls that start processes and threads |
//! | [`returns`] | handlers that return |
//! | [`alike`] | actions that are alike in all runs |
//! | [`tempest_thread`] | the column of the thread that uses `tempest.h` |
//! | [`one_node`] | the column of one node |
//! | [`several_nodes`] | the columns of several nodes, and of a child of `vfork` |
//! | [`dispatch`] | calls of code that is not rewritten |
//!
//! The list is in order: a module imports from those above it.

pub mod frame;

pub mod loading;

pub mod own_file;

pub mod caller;

pub mod own_memory;

pub mod shared_futex;

pub mod processes;

pub mod returns;

pub mod alike;

pub mod tempest_thread;

pub mod one_node;

pub mod several_nodes;

pub mod dispatch;
