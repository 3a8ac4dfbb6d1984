//! How a function of `tempest.h` reaches the nodes.
//!
//! Input: the node, or none where the program runs alone. Output: [`CallHost`]: the caller's number, the node if there is one, and the counters.

use crate::node::node::Node;
use crate::process::tags;
use blizzard_contract::Counter;
use blizzard_protocol::ids::NodeId;

/// How a function of the interface reaches the nodes.
pub enum CallHost<'a> {
    /// The only node.
    Alone,
    Node(&'a mut Node),
}

impl CallHost<'_> {
    pub fn me(&self) -> NodeId {
        match self {
            CallHost::Alone => NodeId::FIRST,
            CallHost::Node(node) => node.me,
        }
    }

    pub fn node(&mut self) -> Option<&mut Node> {
        match self {
            CallHost::Alone => None,
            CallHost::Node(node) => Some(node),
        }
    }

    /// Counts one event.
    pub fn count(&self, counter: Counter) {
        match self {
            CallHost::Alone => tags::count(counter),
            CallHost::Node(node) => node.count(counter),
        }
    }
}
