//! What is about Blizzard itself: its help, what shells and manuals know of it, its cache, the machine that it runs on.
//!
//! Input: definitions of commands, a cache, a machine. Output: text, files. **Invariant**: no program is rewritten here, but for the cache.

pub(crate) mod overview;

pub(crate) mod shell;

pub(crate) mod cache;

pub(crate) mod doctor;
