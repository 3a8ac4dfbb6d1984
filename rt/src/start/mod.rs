//! How the runtime gets in first.

// Loads the dynamic loader.
pub mod loader;

// The program's initial stack.
pub mod stack;

// The order of all that.
pub mod entry;
