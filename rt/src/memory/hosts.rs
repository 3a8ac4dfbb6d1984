//! Which node is on which host.
//!
//! Input: the region's table, which the launcher fills. Output: [`Hosts`]. A run on one machine has one host.
//! **Invariant**: hosts are numbered in the order of their nodes, and a host's nodes follow each other; each has one at least.

use crate::memory::region::Region;
use blizzard_protocol::ids::{NodeId, NodeSet};
use core::ops::Range;

/// The hosts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// The first node of each.
    firsts: NodeSet,
    nodes: u32,
}

impl Hosts {
    pub fn of(region: &Region) -> Hosts {
        let nodes = region.header().nodes;
        let is_first = |node: &NodeId| usize::from(region.host_first(*node)) == node.index();
        Hosts { firsts: (0..nodes).filter_map(NodeId::new).filter(is_first).collect(), nodes }
    }

    /// How many there are: at least one.
    pub fn count(&self) -> u32 {
        self.firsts.len() as u32
    }

    /// The number of a node's host.
    pub fn number(&self, node: u32) -> u32 {
        let up_to_it = self.firsts.iter().take_while(|first| first.index() as u32 <= node).count();
        up_to_it.saturating_sub(1) as u32
    }

    /// The nodes of the host with that number; none if there is no such host.
    pub fn nodes(&self, number: u32) -> Range<u32> {
        let mut firsts = self.firsts.iter().map(|first| first.index() as u32).skip(number as usize);
        let begin = firsts.next().unwrap_or(self.nodes);
        begin..firsts.next().unwrap_or(self.nodes)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Hosts without a region.

    use super::*;

    /// So many nodes, on hosts that begin with node 0 and with these ones.
    pub fn hosts(nodes: u32, firsts: &[u16]) -> Hosts {
        let firsts = firsts.iter().filter_map(|&first| NodeId::new(first.into()));
        Hosts { firsts: firsts.chain([NodeId::FIRST]).collect(), nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::hosts;
    use super::*;
    use crate::memory::region::testing::TestRegion;

    #[test]
    fn each_node_is_on_one_host() {
        let three = hosts(6, &[2, 3]);
        assert_eq!(three.count(), 3);
        assert_eq!([0, 1, 2, 3].map(|number| three.nodes(number)), [0..2, 2..3, 3..6, 6..6]);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|node| three.number(node)), [0, 0, 1, 2, 2, 2]);
        let one = hosts(5, &[]);
        assert_eq!((one.count(), one.nodes(0), one.number(4)), (1, 0..5, 0));
    }

    #[test]
    fn the_regions_table_says_which() {
        let test = TestRegion::new(6, 1, 1 << 20, 16);
        assert_eq!(Hosts::of(&test.region), hosts(6, &[]));
        test.set_hosts(&[2, 3]);
        assert_eq!(Hosts::of(&test.region), hosts(6, &[2, 3]));
    }
}
