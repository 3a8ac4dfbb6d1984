//! Bulk data transfer through channels (Tempest 1.2.1, section 3.4; Reinhardt 1996, A.2.4 for the functions that the former's text lacks).
//!
//! Purpose: move large buffers from memory to memory. Input: calls of both ends, messages of the other end. Output: data in the
//! destination's buffer, callbacks.
//!
//! Here: the endpoints of channels, and what the program says and hears. The source offers its buffer (BULK_SEND), and the destination says when it has all of it
//! (BULK_DONE). In between the data goes one of two ways:
//! * `staged`: piece by piece through the source's staging area, while the source is in the runtime;
//! * `direct`: copied out of the other process's memory, where the source computes, or stages another transfer. Where such copies are forbidden, transfers wait
//!   for the staging area: `turns`.
//!
//! Data goes where the buffer says, whatever the tags are; tags do not change.
//!
//! **Invariants**: a channel is named by its source's node and number; only the destination writes the buffer, between an offer and its
//! end, so an endpoint that was reset is never written to. What the other end does against the rules of section 3.4 ends the run with
//! the rule's name.

// Memory of both ends of a channel.
pub mod staging;

// The endpoints, and what the program says of them.
pub mod channels;

// Piece by piece through the staging area.
pub mod staged;

// One after the other through the staging area.
pub mod turns;

// Transfers from their offer to their end, and copies out of the other process's memory.
pub mod transfer;
