//! What programs that share memory begin with: headers and library, flags, projects.
//!
//! Input: a folder, or none. Output: files below it, paths. **Invariant**: the files are part of this executable.

pub(crate) mod client;

pub(crate) mod config;

pub(crate) mod new;
