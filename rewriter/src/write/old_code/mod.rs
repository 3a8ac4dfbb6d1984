//! What remains at the old addresses.
//!
//! Input: which addresses something may lead to, where their instructions have got to. Output: jumps and trap bytes in place of the old code, rows of the trap
//! map. **Invariant**: no byte of an old instruction can run, but for a `ret` of one byte.

pub(crate) mod springboards;

pub(crate) mod chains;
