//! What the nodes of a run do to agree: by messages, never through shared memory.
//!
//! Purpose: the state of the program's synchronisation on one node, and the handlers that change it. A handler is given its own state and the node's
//! [`Links`](crate::links::links::Links), so it can neither wait nor touch anything else. The calls of the program, which wait, are in
//! [`crate::node::calls`]. Input: messages. Output: answers that end the callers' waits.

// Sets of nodes.
pub mod sets;

// What is computed.
pub mod op;

// How programs hold an object.
pub mod handle;

// Who tells whom, where all take part.
pub mod tree;

// Barriers of all nodes, reductions, broadcasts.
pub mod collective;

// Locks.
pub mod lock;

// Barriers of some nodes, events.
pub mod group;

// Counters, remote writes.
pub mod remote;

// Publish and lookup.
pub mod slots;

// All of it, and the end of a node's computation.
pub mod state;
