//! What is kept on disk: the cache, and the libraries of programs.

pub mod cache;
pub(crate) mod closure;
pub(crate) mod library_search;
