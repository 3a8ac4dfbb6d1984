//! What is kept on disk: the cache, and the libraries of programs.

pub mod cache;
pub mod closure;
pub mod library_search;
