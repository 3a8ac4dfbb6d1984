//! The node of this process, the ways into it, and code that was interrupted or has entered.

// The stack that the node works on.
pub mod own_stack;

// Tags as the gates see them.
pub mod tags;

// How a function of `tempest.h` reaches the nodes.
pub mod host;

// The one node, and the ways in.
pub mod process;

// A stack that is not private.
pub mod private_stack;

// Makes ranges accessible for the gates.
pub mod accesses;

// Accesses that need several ranges at once.
pub mod groups;

// What a gate saves.
pub mod frame;

// Where the program goes on behind a gate.
pub mod goes_on;

// Continuing between a check and what it covers.
pub mod resume;

// What becomes of trap bytes.
pub mod trap_bytes;

// The piece of a string instruction that is executed.
pub mod string_piece;

// Gathers and scatters.
pub mod vsib;

// Nodes that node 0 creates.
pub mod creation;
