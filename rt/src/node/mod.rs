//! A node of a run: accesses, messages, waiting.

// The arenas that a node owns.
pub mod arenas;

// How much signals take of the program's time.
pub mod disturbance;

// Loops in which the program waits by itself.
pub mod spinning;

// What becomes of hints.
pub mod hints;

// What a node consists of.
pub mod node;

// Whether a timer is due.
pub mod alarm;

// Who interrupts plain code where there is no peer.
pub mod nudge;

// Makes the blocks of an access accessible at once.
pub mod access;

// Whether accesses keep the promises of protocols.
pub mod promises;

// The program's handlers, as the node knows them.
pub mod user_handlers;

// What is done with each kind of message.
pub mod handlers;

// A node at work.
pub mod waiting;

// What programs call.
pub mod calls;

// All of it in a run of one node.
pub mod single;
