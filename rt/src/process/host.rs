//! How a function of `tempest.h` reaches the nodes.

use crate::node::node::Node;
use crate::process::tags;
use blizzard_contract::Counter;
use blizzard_protocol::ids::NodeId;

/// How a function of the interface reaches the nodes.
pub enum Host<'a> {
    /// The only node.
    Alone,
    Node(&'a mut Node),
}

impl Host<'_> {
    pub fn me(&self) -> NodeId {
        match self {
            Host::Alone => NodeId::FIRST,
            Host::Node(node) => node.me,
        }
    }

    pub fn node(&mut self) -> Option<&mut Node> {
        match self {
            Host::Alone => None,
            Host::Node(node) => Some(node),
        }
    }

    /// Counts one event.
    pub fn count(&self, counter: Counter) {
        match self {
            Host::Alone => tags::count(counter),
            Host::Node(node) => node.count(counter),
        }
    }
}
