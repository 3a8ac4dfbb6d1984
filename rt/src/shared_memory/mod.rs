//! What `blizzard.h` offers a program, with one node and with several.

pub mod alloc;

pub mod heap;

pub mod single;

pub mod api;
