//! The coherence directory of the M-Machine's protocol: eight bytes, and a set of nodes, per block at its home.
//!
//! Purpose: [`Entry`] is what the home stores for each block; [`HomeState`] is what it means; `encode` and `decode` convert. Source:
//! Gurevich 1995, sections 7.2.1 (states) and 7.3.2 (yankbuffers). The source keeps a linked list of sharers and a separate buffer
//! for each invalidation in progress; here both are one entry of fixed size, so that nothing needs to be allocated inside a miss.
//!
//! ```text
//! byte  0     kind (0 Unshared)
//! byte  1     1: the requester wants the only copy
//! bytes 2-3   requester: 0 none, 65535 the home itself, else node number + 1
//! bytes 4-5   the owner whose data is awaited: 0 none, else node number + 1
//! bytes 6-7   zero
//! bytes 8-    a bit for each node: a sharer, the owner, or has yet to answer
//! ```
//!
//! **Invariant:** each state has exactly one encoding and zero bytes are Unshared, so that a directory page fresh from the
//! kernel is a correct one. `decode` accepts nothing else.

use crate::ids::{NodeId, NodeSet, RUN_WORDS};
use crate::storage::Zeroed;
use crate::tag::Tag;

/// On whose behalf the home has others give up their copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requester {
    /// The home's own program. When its request is fulfilled the home has the only copy, whatever it wanted.
    Home,
    Node {
        node: NodeId,
        /// It wants the only copy.
        exclusive: bool,
    },
}

/// What the home knows about a block.
///
/// **Invariant:** the set of `Shared` is not empty. `Transitioning` waits for at least one answer or for data; the requester is not
/// waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HomeState {
    /// No other node has a copy; the home may store.
    Unshared,
    /// ReadOnly copies at the home and at (a subset of) these nodes.
    Shared(NodeSet),
    /// The only copy is Writable and at that node, or on its way to it, or on its way back.
    Exclusive(NodeId),
    /// `Invalidate` sent to each of `waiting`, not yet answered. `owes`: the data is at that node or on its way back, whether or not
    /// that node's answer has come already. Then the requester is served.
    Transitioning { waiting: NodeSet, owes: Option<NodeId>, requester: Requester },
}

impl HomeState {
    /// Whether requests are refused.
    pub const fn is_transitioning(self) -> bool {
        matches!(self, HomeState::Transitioning { .. })
    }

    /// The tag that the home's own copy has in this state. The home goes on reading its copy until the moment at which it
    /// grants an exclusive one, because no store can happen before that.
    pub const fn home_tag(self) -> Tag {
        match self {
            HomeState::Unshared => Tag::Writable,
            HomeState::Shared(_) | HomeState::Transitioning { owes: None, .. } => Tag::ReadOnly,
            HomeState::Exclusive(_) | HomeState::Transitioning { owes: Some(_), .. } => Tag::Invalid,
        }
    }
}

/// The stored form of a [`HomeState`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Entry {
    kind: u8,
    exclusive: u8,
    requester: u16,
    owes: u16,
    zero: u16,
    nodes: NodeSet,
}

const _: () = assert!(size_of::<Entry>() == 8 + size_of::<NodeSet>());
// SAFETY: integers; all zero is the Unshared entry.
unsafe impl Zeroed for Entry {}

const UNSHARED: u8 = 0;
const SHARED: u8 = 1;
const EXCLUSIVE: u8 = 2;
const TRANSITIONING: u8 = 3;

const NOBODY: u16 = 0;
const HOME: u16 = 0xffff;

/// A node's number where 0 means nobody.
const fn name_of(node: NodeId) -> u16 {
    node.index() as u16 + 1
}

fn node(name: u16) -> Option<NodeId> {
    NodeId::new(u32::from(name).checked_sub(1)?).filter(|node| node.index() < NodeSet::<RUN_WORDS>::CAPACITY)
}

impl Entry {
    /// No copies elsewhere: zero bytes.
    pub const UNSHARED: Entry =
        Entry { kind: UNSHARED, exclusive: 0, requester: NOBODY, owes: NOBODY, zero: 0, nodes: NodeSet::EMPTY };

    pub const fn encode(state: HomeState) -> Entry {
        match state {
            HomeState::Unshared => Entry::UNSHARED,
            HomeState::Shared(sharers) => Entry { nodes: sharers, kind: SHARED, ..Entry::UNSHARED },
            HomeState::Exclusive(owner) => Entry { nodes: NodeSet::of(owner), kind: EXCLUSIVE, ..Entry::UNSHARED },
            HomeState::Transitioning { waiting, owes, requester } => {
                let (requester, exclusive) = match requester {
                    Requester::Home => (HOME, 0),
                    Requester::Node { node, exclusive } => (name_of(node), exclusive as u8),
                };
                let owes = match owes {
                    Some(owner) => name_of(owner),
                    None => NOBODY,
                };
                Entry { nodes: waiting, kind: TRANSITIONING, requester, owes, exclusive, zero: 0 }
            }
        }
    }

    /// `None` if this is not an entry that [`Entry::encode`] makes from a state that keeps [`HomeState`]'s invariant.
    pub fn decode(self) -> Option<HomeState> {
        let nodes = self.nodes;
        let state = match self.kind {
            UNSHARED => HomeState::Unshared,
            SHARED if !nodes.is_empty() => HomeState::Shared(nodes),
            EXCLUSIVE => HomeState::Exclusive(nodes.only()?),
            TRANSITIONING => {
                let owes = if self.owes == NOBODY { None } else { Some(node(self.owes)?) };
                let requester = match self.requester {
                    HOME => Requester::Home,
                    name => Requester::Node { node: node(name)?, exclusive: self.exclusive != 0 },
                };
                let fits = match (owes, requester) {
                    (Some(owner), Requester::Node { node, .. }) if owner == node => false,
                    // An owner is the only one who is waited for.
                    (Some(owner), _) => nodes.without(owner).is_empty(),
                    (None, _) => !nodes.is_empty(),
                };
                let waits_for_requester = matches!(requester, Requester::Node { node, .. } if nodes.contains(node));
                if !fits || waits_for_requester {
                    return None;
                }
                HomeState::Transitioning { waiting: nodes, owes, requester }
            }
            _ => return None,
        };
        (Entry::encode(state) == self).then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RUN_NODES;

    fn some_nodes() -> Vec<NodeId> {
        [0, 1, 2, 17, RUN_NODES as u32 - 1].into_iter().map(|n| NodeId::new(n).unwrap()).collect()
    }

    fn sets() -> Vec<NodeSet> {
        let nodes = some_nodes();
        let subset = |bits: u32| {
            nodes.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).fold(NodeSet::EMPTY, |s, (_, &n)| s.with(n))
        };
        (0..1 << nodes.len()).map(subset).collect()
    }

    fn states() -> Vec<HomeState> {
        let nodes = some_nodes();
        let requesters: Vec<Requester> = [Requester::Home]
            .into_iter()
            .chain(nodes.iter().flat_map(|&node| [true, false].map(|exclusive| Requester::Node { node, exclusive })))
            .collect();
        let is_requester = |set: NodeSet, r: Requester| matches!(r, Requester::Node { node, .. } if set.contains(node));
        let mut states = vec![HomeState::Unshared];
        states.extend(sets().into_iter().filter(|s| !s.is_empty()).map(HomeState::Shared));
        states.extend(nodes.iter().map(|&owner| HomeState::Exclusive(owner)));
        for &requester in &requesters {
            for waiting in sets().into_iter().filter(|&s| !s.is_empty() && !is_requester(s, requester)) {
                states.push(HomeState::Transitioning { waiting, owes: None, requester });
            }
            for &owner in nodes.iter().filter(|&&n| !is_requester(NodeSet::of(n), requester)) {
                for waiting in [NodeSet::EMPTY, NodeSet::of(owner)] {
                    states.push(HomeState::Transitioning { waiting, owes: Some(owner), requester });
                }
            }
        }
        states
    }

    #[test]
    fn every_state_has_its_own_encoding() {
        let mut seen = std::collections::HashSet::new();
        let states = states();
        assert!(states.len() > 300, "{}", states.len());
        for state in states {
            let entry = Entry::encode(state);
            assert_eq!(entry.decode(), Some(state));
            assert!(seen.insert(entry), "{state:?}");
        }
        assert_eq!(Entry::default().decode(), Some(HomeState::Unshared));
        assert_eq!(Entry::default(), Entry::UNSHARED);
    }

    #[test]
    fn corrupt_entries_are_refused() {
        let entry = |nodes: u64, kind, requester, owes, exclusive, zero| {
            let nodes = (0..64).filter(|&bit| nodes >> bit & 1 == 1).filter_map(NodeId::new).collect();
            Entry { nodes, kind, requester, owes, exclusive, zero }
        };
        for bad in [
            entry(0, 4, 0, 0, 0, 0),                // no such kind
            entry(2, UNSHARED, 0, 0, 0, 0),         // Unshared with a sharer
            entry(0, SHARED, 0, 0, 0, 0),           // Shared by nobody
            entry(2, SHARED, 0, 0, 0, 1),           // rubbish
            entry(6, EXCLUSIVE, 0, 0, 0, 0),        // two owners
            entry(2, EXCLUSIVE, HOME, 0, 0, 0),     // a requester without a transition
            entry(2, TRANSITIONING, 0, 0, 0, 0),    // nobody asked
            entry(0, TRANSITIONING, 2, 0, 0, 0),    // waits for nothing
            entry(2, TRANSITIONING, 2, 0, 0, 0),    // waits for the requester
            entry(4, TRANSITIONING, 3, 3, 0, 0),    // likewise
            entry(4, TRANSITIONING, 5, 2, 0, 0),    // waits for another node than the owner
            entry(4, TRANSITIONING, HOME, 0, 1, 0), // the home wants nothing exclusively
            entry(4, TRANSITIONING, 5, 0, 2, 0),    // neither 0 nor 1
            entry(4, TRANSITIONING, 5000, 0, 0, 0), // no such node
        ] {
            assert_eq!(bad.decode(), None, "{bad:?}");
        }
    }
}
