//! The ways from the program into the runtime.

// What handlers may ask.
pub mod notes;

// String instructions, piece by piece.
pub mod string_steps;

// The string gate.
pub mod strings;

// A stack pointer that has become an address of shared memory.
pub mod shared_stack;

// The gate of gathers and scatters.
pub mod gathers;

// Trap bytes at old addresses.
pub mod trap;

// The gates: they save registers, call the node, and restore them.
pub mod entries;

// Allocations that get other attributes than the program asks for.
pub mod alloc_rules;

// The functions of `blizzard.h`.
pub mod blizzard_h;
