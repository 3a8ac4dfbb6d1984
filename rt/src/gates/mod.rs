//! The ways from rewritten code into the runtime.
//!
//! | file | what |
//! |---|---|
//! | [`entries`] | the gates: they save registers, call the node, and restore them |
//! | [`access`] | tags as the gates see them |
//! | [`string_steps`], [`strings`] | string instructions, executed piece by piece |
//! | [`vsib`] | gathers and scatters |
//! | [`shared_stack`] | a stack pointer that has become an address of shared memory |
//! | [`trap`] | trap bytes at old addresses |
//! | [`resume`] | contexts that continue in the middle of a group of accesses |

pub mod string_steps;

pub mod strings;

pub mod vsib;

pub mod shared_stack;

pub mod resume;

pub mod trap;

pub mod entries;

pub mod blizzard_h;
