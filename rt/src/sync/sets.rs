//! Sets of nodes: a bit each.
//!
//! Purpose: the bits, and how error lines name the nodes of a set.

use blizzard_contract::MAX_NODES;
use blizzard_protocol::ids::NodeId;
use core::fmt;

/// A set of nodes that prints as `node 1` or `nodes 0, 2`.
pub struct Names(pub u64);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.count_ones() == 1 { "node" } else { "nodes" })?;
        let mut separator = " ";
        for number in (0..MAX_NODES).filter(|number| self.0 >> number & 1 == 1) {
            write!(f, "{separator}{number}")?;
            separator = ", ";
        }
        Ok(())
    }
}

pub fn bit(node: NodeId) -> u64 {
    1 << node.index()
}

/// The nodes of a set, in ascending order.
pub fn members(nodes: u64) -> impl Iterator<Item = NodeId> {
    (0..MAX_NODES as u32).filter(move |number| nodes >> number & 1 != 0).filter_map(NodeId::new)
}

/// Prints as `node 1 waits` or `nodes 0, 2 wait`.
pub struct Waits(pub u64);

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Names(self.0), if self.0.count_ones() == 1 { "waits" } else { "wait" })
    }
}

/// Prints as `node 1 has` or `nodes 0, 2 have`.
pub struct Has(pub u64);

impl fmt::Display for Has {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Names(self.0), if self.0.count_ones() == 1 { "has" } else { "have" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_nodes_read_well() {
        assert_eq!(Waits(2).to_string(), "node 1 waits");
        assert_eq!(Has(0x8000_0000_0000_0005).to_string(), "nodes 0, 2, 63 have");
    }
}
