//! The basic operations on each kind of access control.

/// Tags, and memory that faults.
mod aliased;

mod operations;
