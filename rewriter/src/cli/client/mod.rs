//! What programs that share memory are built with, as files: headers, client library, macros, and what build tools look for.
//!
//! Input: a folder, or none. Output: the files below it. They are part of this executable.
//! **Invariant**: the files of a folder are of one build; whoever reads one meanwhile sees the old or the new one whole.

pub(crate) mod files;
