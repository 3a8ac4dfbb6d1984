//! Libraries: which are rewritten, where they are kept, and what a program sees of it.

pub mod as_they_are;
pub mod bundles;
pub mod cache;
pub mod own_path;
pub mod system_libraries;
