//! What becomes of trap bytes that the program comes to.

// Filters of system calls.
pub mod filters;

// Those that are hit again and again.
pub mod hot_traps;

// Where a debugger watches.
pub mod debugged;
