//! Shared allocation: who owns which memory, and what of it is in use.

pub mod arena;

pub mod arenas;
