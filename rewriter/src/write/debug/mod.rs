//! Debug information of the new code.
//!
//! Input: DWARF of the input or of its separate debug file, a map of addresses. Output: the same for new addresses.
//! **Invariant**: what is not understood stays as it was; debug information is never a reason to refuse a program.

pub(crate) mod address_map;

pub(crate) mod sections;

pub(crate) mod line;

pub(crate) mod lists;

pub(crate) mod fixed;

pub(crate) mod rewrite;
