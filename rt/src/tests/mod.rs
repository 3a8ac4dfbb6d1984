//! Tests of several nodes in one process.

/// Nodes as threads.
mod nodes;

/// All orders in which a few nodes can receive messages.
mod explore;

/// Locks, barriers and events.
mod sync_models;

/// What a node has in place of the process's statics.
mod statics;
