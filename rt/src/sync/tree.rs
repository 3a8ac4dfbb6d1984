//! Who tells whom in a collective.
//!
//! Purpose: arrivals go from a node to its [parent](Tree::parent), results to its [children](Tree::children). The nodes of a host are below its first one, and
//! these first ones below node 0's. So of each other host one message goes up, and one comes down. Input: the run's hosts and nodes. Output: node numbers.
//!
//! Up to [`FLAT`] nodes of a host, or hosts, are below the first one; more form a tree in which number `i` has the children `4i + 1 ..= 4i + 4`. A node
//! that node 0 creates after the homes are dealt out is a child of node 0.
//! **Invariant**: each node but node 0 has one parent, whose number is lower.
//!
//! Source: Mellor-Crummey and Scott, Algorithms for Scalable Synchronization, 1991, section 3.3 (tree barriers).

use crate::memory::hosts::Hosts;
use blizzard_protocol::ids::{NodeId, NodeSet};
use core::ops::Range;

/// Up to so many, the first one is everybody's parent.
pub const FLAT: u32 = 8;
/// Children of one of more.
const FAN_OUT: u32 = 4;

/// The parent of number `which` of so many; `None` for the first.
const fn above(which: u32, size: u32) -> Option<u32> {
    match which {
        0 => None,
        _ if size <= FLAT => Some(0),
        _ => Some((which - 1) / FAN_OUT),
    }
}

/// The children of number `which` of so many.
fn below(which: u32, size: u32) -> Range<u32> {
    let (begin, end) = match which {
        0 if size <= FLAT => (1, size),
        _ if size <= FLAT => (size, size),
        _ => (FAN_OUT * which + 1, FAN_OUT * (which + 1) + 1),
    };
    begin.min(size)..end.min(size)
}

/// The tree over nodes `0..size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    pub hosts: Hosts,
    pub size: u32,
}

impl Tree {
    /// A node's host, and which of that host's nodes take part.
    fn host(&self, node: u32) -> (u32, Range<u32>) {
        let number = self.hosts.number(node);
        let nodes = self.hosts.nodes(number);
        (number, nodes.start..nodes.end.min(self.size))
    }

    /// Where node `node` sends its arrival; `None` for node 0. A node outside is node 0's child.
    pub fn parent(&self, node: u32) -> Option<u32> {
        if node >= self.size {
            return Some(0);
        }
        let (number, own) = self.host(node);
        match above(node - own.start, own.len() as u32) {
            Some(place) => Some(own.start + place),
            None => above(number, self.hosts.count()).map(|host| self.hosts.nodes(host).start),
        }
    }

    /// The children of `node` among `0..all`.
    pub fn children(&self, node: u32, all: u32) -> NodeSet {
        if node >= self.size {
            return NodeSet::EMPTY;
        }
        let (number, own) = self.host(node);
        let here = below(node - own.start, own.len() as u32).map(|place| own.start + place);
        let hosts = if node == own.start { below(number, self.hosts.count()) } else { 0..0 };
        let there = hosts.map(|host| self.hosts.nodes(host).start);
        let late = if node == 0 { self.size..all } else { 0..0 };
        here.chain(there).chain(late).filter_map(NodeId::new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::hosts::testing::hosts;
    use blizzard_protocol::ids::RUN_NODES;
    use std::vec::Vec;

    /// Each node has one parent and is its child; how many are below one at most.
    fn check(tree: Tree, all: u32) -> usize {
        let (mut seen, mut most) = (NodeSet::of(NodeId::FIRST), 0);
        for node in 0..all {
            let children = tree.children(node, all);
            assert!(seen.intersection(children).is_empty(), "a child of two");
            for child in children.iter().map(|child| child.index() as u32) {
                assert!(tree.parent(child) == Some(node) && child > node, "{child} of {node}: {tree:?}");
            }
            most = most.max(children.len());
            seen = seen.union(children);
        }
        assert_eq!((seen.len() as u32, tree.parent(0)), (all, None), "{tree:?} of {all}");
        most
    }

    #[test]
    fn every_node_has_one_parent_and_is_its_child() {
        let nodes = RUN_NODES as u32;
        let one = hosts(nodes, &[]);
        for size in 1..=nodes {
            for late in [0, 3] {
                let all = (size + late).min(nodes);
                let most = check(Tree { hosts: one, size }, all) as u32;
                assert!(
                    most <= if size <= FLAT { all - 1 } else { FAN_OUT + late },
                    "{size} nodes and {late} later ones"
                );
            }
        }
    }

    /// On one host the tree is that of the nodes' numbers.
    #[test]
    fn one_host_has_one_tree() {
        let one = hosts(20, &[]);
        let parents = |size| (0..20).map(|node| Tree { hosts: one, size }.parent(node)).collect::<Vec<_>>();
        assert!(parents(8).iter().enumerate().all(|(node, parent)| *parent == (node != 0).then_some(0)));
        let of_twenty = (0..20).map(|node: u32| node.checked_sub(1).map(|before| before / 4));
        assert!(parents(20).into_iter().eq(of_twenty));
    }

    #[test]
    fn one_node_of_a_host_has_its_parent_on_another_one() {
        let nodes = RUN_NODES.min(64) as u16;
        let every = |step: usize| (step as u16..nodes).step_by(step).collect::<Vec<_>>();
        for firsts in
            [every(1), every(2), every(3), every(8), every(20), std::vec![1], std::vec![60], std::vec![2, 3, 40]]
        {
            let hosts = hosts(nodes.into(), &firsts);
            let tree = Tree { hosts, size: nodes.into() };
            let most = check(tree, nodes.into()) as u32;
            assert!(most <= 2 * (FLAT - 1), "{firsts:?}: {most}");
            for number in 0..hosts.count() {
                let away = |node: &u32| tree.parent(*node).is_some_and(|parent| hosts.number(parent) != number);
                let leaves: Vec<u32> = hosts.nodes(number).filter(away).collect();
                let first = hosts.nodes(number).start;
                assert_eq!(leaves, if number == 0 { std::vec![] } else { std::vec![first] }, "{firsts:?}");
            }
        }
    }
}
