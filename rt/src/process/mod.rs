//! The node of this process, and the ways into it.

/// The stack that the node works on.
pub mod own_stack;

/// Tags as the gates see them.
pub mod tags;

/// How a function of `tempest.h` reaches the nodes.
pub mod host;

/// The one node, and the ways in.
pub mod process;

/// Makes ranges accessible for the gates.
pub mod accesses;

/// Nodes that node 0 creates.
pub mod creation;
