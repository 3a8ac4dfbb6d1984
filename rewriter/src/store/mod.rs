//! What is kept on disk: the cache of rewritten programs, the libraries of programs, and what runs have learnt.
//!
//! Input: originals and options. Output: paths of rewritten files. **Invariant**: a path leads to a file that was rewritten from the bytes it stands for, or
//! to none.

pub mod cache;

pub(crate) mod knowledge;

pub(crate) mod library_search;

pub(crate) mod closure;
