//! Files of every shape, and what names their code: symbols, words of data, what is attached.

pub mod attached;
pub mod data_words;
pub mod exports;
pub mod runtime_entry;
pub mod self_rewrite;
pub mod sstripped;
