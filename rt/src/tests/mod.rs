//! Tests of several nodes in one process.

/// Nodes as threads.
mod nodes;

/// All orders in which a few nodes can receive messages.
mod explore;

/// Locks, barriers and events.
mod sync_models;
