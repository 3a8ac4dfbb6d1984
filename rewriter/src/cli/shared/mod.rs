//! What several commands do: arguments, printing, finding programs and compilers, rewriting libraries, running embedded programs.
//!
//! Input: parts of command lines. Output: what the commands go on with. **Invariant**: no command is known here.

pub(crate) mod print;

pub(crate) mod arguments;

pub(crate) mod scratch;

pub(crate) mod input;

pub(crate) mod hosts;

pub(crate) mod debug_file;

pub(crate) mod compiler;

pub(crate) mod libraries;

pub(crate) mod workload;
