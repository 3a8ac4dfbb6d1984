//! The directory entry of a block at its home: eight bytes.
//!
//! Purpose: [`DirEntry`] is what the home stores for each block; [`DirState`] is what it means. [`DirEntry::encode`] and
//! [`DirEntry::decode`] convert. Source: Reinhardt 1996, section 2.3: two bytes of state and six one-byte node pointers, of
//! which four become a bit vector when more than six nodes share the block.
//!
//! ```text
//! byte 0      bits 0-6: kind (0 Idle); bit 7: the set is a bit vector
//! byte 1      requester: 0 none, 255 the home itself, else node number + 1
//! bytes 2-7   pointers: node number + 1 in ascending order, then zeros;
//!             or bytes 2-5 the bit vector (little-endian), bytes 6-7 zero
//! ```
//!
//! **Invariant:** each state has exactly one encoding and eight zero bytes are Idle, so that a directory page fresh from the
//! kernel is a correct one. `decode` accepts nothing else.

use super::{NodeId, Tag};
use crate::abi::MAX_NODES;

/// A set of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u32);

const _: () = assert!(MAX_NODES <= 32);

impl NodeSet {
    pub const EMPTY: NodeSet = NodeSet(0);

    pub const fn of(node: NodeId) -> NodeSet {
        NodeSet(1 << node.index())
    }

    #[must_use]
    pub const fn with(self, node: NodeId) -> NodeSet {
        NodeSet(self.0 | NodeSet::of(node).0)
    }

    #[must_use]
    pub const fn without(self, node: NodeId) -> NodeSet {
        NodeSet(self.0 & !NodeSet::of(node).0)
    }

    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & NodeSet::of(node).0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The nodes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let lowest = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            NodeId::new(lowest)
        })
    }

    /// The node that is the set's only member.
    fn only(self) -> Option<NodeId> {
        if self.0.is_power_of_two() { NodeId::new(self.0.trailing_zeros()) } else { None }
    }
}

/// On whose behalf the home makes other nodes give up their copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requester {
    /// The home's own program.
    Home,
    Node(NodeId),
}

/// What the home knows about a block.
///
/// **Invariant:** the set of a `Shared` or `AwaitAcks` state is not empty, and never contains the requester or the home.
/// `Shared` may name nodes that have silently dropped their copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirState {
    /// No remote copy; the home may store.
    Idle,
    /// ReadOnly copies at the home and at (a subset of) these nodes.
    Shared(NodeSet),
    /// The only copy is Writable and at that node, or on its way to it, or on its way back.
    Exclusive(NodeId),
    /// `Invalidate` sent to each of `waiting`, not yet acknowledged; then `requester` may store. `upgrade`: it has the data.
    AwaitAcks { waiting: NodeSet, requester: Requester, upgrade: bool },
    /// `RecallRead` sent to `owner`; then `requester` may load.
    RecallRead { owner: NodeId, requester: Requester },
    /// `RecallWrite` sent to `owner`; then `requester` may store.
    RecallWrite { owner: NodeId, requester: Requester },
}

impl DirState {
    /// Whether requests must be deferred.
    pub const fn is_busy(self) -> bool {
        !matches!(self, DirState::Idle | DirState::Shared(_) | DirState::Exclusive(_))
    }

    /// The tag that the home's own copy has in this state. The home keeps reading its copy until the moment it grants a
    /// remote store, because the store cannot happen before that.
    pub const fn home_tag(self) -> Tag {
        match self {
            DirState::Idle => Tag::Writable,
            DirState::Shared(_) => Tag::ReadOnly,
            DirState::Exclusive(_) => Tag::Invalid,
            DirState::AwaitAcks { requester: Requester::Home, .. }
            | DirState::RecallRead { requester: Requester::Home, .. }
            | DirState::RecallWrite { requester: Requester::Home, .. } => Tag::Busy,
            DirState::AwaitAcks { requester: Requester::Node(_), .. } => Tag::ReadOnly,
            DirState::RecallRead { requester: Requester::Node(_), .. }
            | DirState::RecallWrite { requester: Requester::Node(_), .. } => Tag::Invalid,
        }
    }
}

/// Node pointers of an entry before it switches to a bit vector.
pub const POINTERS: usize = 6;

/// The stored form of a [`DirState`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(8))]
pub struct DirEntry {
    kind: u8,
    requester: u8,
    nodes: [u8; POINTERS],
}

const _: () = assert!(size_of::<DirEntry>() == 8 && align_of::<DirEntry>() == 8);

const IDLE: u8 = 0;
const SHARED: u8 = 1;
const EXCLUSIVE: u8 = 2;
const AWAIT_ACKS: u8 = 3;
const AWAIT_ACKS_UPGRADE: u8 = 4;
const RECALL_READ: u8 = 5;
const RECALL_WRITE: u8 = 6;
const VECTOR: u8 = 0x80;

const NO_REQUESTER: u8 = 0;
const HOME_REQUESTER: u8 = 0xff;

impl DirEntry {
    /// No remote copies: eight zero bytes.
    pub const IDLE: DirEntry = DirEntry { kind: IDLE, requester: NO_REQUESTER, nodes: [0; POINTERS] };

    pub fn encode(state: DirState) -> DirEntry {
        let (kind, requester, set) = match state {
            DirState::Idle => (IDLE, None, NodeSet::EMPTY),
            DirState::Shared(set) => (SHARED, None, set),
            DirState::Exclusive(owner) => (EXCLUSIVE, None, NodeSet::of(owner)),
            DirState::AwaitAcks { waiting, requester, upgrade: false } => (AWAIT_ACKS, Some(requester), waiting),
            DirState::AwaitAcks { waiting, requester, upgrade: true } => (AWAIT_ACKS_UPGRADE, Some(requester), waiting),
            DirState::RecallRead { owner, requester } => (RECALL_READ, Some(requester), NodeSet::of(owner)),
            DirState::RecallWrite { owner, requester } => (RECALL_WRITE, Some(requester), NodeSet::of(owner)),
        };
        let requester = match requester {
            None => NO_REQUESTER,
            Some(Requester::Home) => HOME_REQUESTER,
            Some(Requester::Node(node)) => node.0 + 1,
        };
        let mut nodes = [0; POINTERS];
        if set.len() <= POINTERS {
            for (pointer, node) in nodes.iter_mut().zip(set.iter()) {
                *pointer = node.0 + 1;
            }
            DirEntry { kind, requester, nodes }
        } else {
            nodes[..4].copy_from_slice(&set.0.to_le_bytes());
            DirEntry { kind: kind | VECTOR, requester, nodes }
        }
    }

    /// `None` if this is not an entry that [`DirEntry::encode`] makes from a state that keeps [`DirState`]'s invariant.
    pub fn decode(self) -> Option<DirState> {
        let set = self.set()?;
        let requester = match self.requester {
            NO_REQUESTER => None,
            HOME_REQUESTER => Some(Requester::Home),
            node => Some(Requester::Node(NodeId::new(u32::from(node) - 1)?)),
        };
        if matches!(requester, Some(Requester::Node(node)) if set.contains(node)) {
            return None;
        }
        Some(match (self.kind & !VECTOR, requester) {
            (IDLE, None) if set.is_empty() => DirState::Idle,
            (SHARED, None) if !set.is_empty() => DirState::Shared(set),
            (EXCLUSIVE, None) => DirState::Exclusive(set.only()?),
            (AWAIT_ACKS, Some(requester)) if !set.is_empty() => {
                DirState::AwaitAcks { waiting: set, requester, upgrade: false }
            }
            (AWAIT_ACKS_UPGRADE, Some(requester @ Requester::Node(_))) if !set.is_empty() => {
                DirState::AwaitAcks { waiting: set, requester, upgrade: true }
            }
            (RECALL_READ, Some(requester)) => DirState::RecallRead { owner: set.only()?, requester },
            (RECALL_WRITE, Some(requester)) => DirState::RecallWrite { owner: set.only()?, requester },
            _ => return None,
        })
    }

    /// The nodes, if they are written in the one way in which `encode` writes them.
    fn set(self) -> Option<NodeSet> {
        if self.kind & VECTOR != 0 {
            let [a, b, c, d, 0, 0] = self.nodes else { return None };
            let set = NodeSet(u32::from_le_bytes([a, b, c, d]));
            return (set.len() > POINTERS).then_some(set);
        }
        let mut set = NodeSet::EMPTY;
        let mut before = 0;
        for (at, &pointer) in self.nodes.iter().enumerate() {
            if pointer == 0 {
                return self.nodes[at..].iter().all(|&rest| rest == 0).then_some(set);
            }
            if pointer <= before {
                return None;
            }
            before = pointer;
            set = set.with(NodeId::new(u32::from(pointer) - 1)?);
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn bytes(entry: DirEntry) -> [u8; 8] {
        let [a, b, c, d, e, f] = entry.nodes;
        [entry.kind, entry.requester, a, b, c, d, e, f]
    }

    fn from_bytes([kind, requester, nodes @ ..]: [u8; 8]) -> DirEntry {
        DirEntry { kind, requester, nodes }
    }

    /// Sets of every size, the boundary between pointers and vector included.
    fn sets() -> impl Iterator<Item = NodeSet> {
        let low = (1..=32u32).map(|size| NodeSet(u32::MAX >> (32 - size)));
        low.chain((1..32u32).map(|size| NodeSet(u32::MAX << (32 - size))))
    }

    fn states() -> Vec<DirState> {
        let mut states = vec![DirState::Idle];
        let nodes: Vec<NodeId> = NodeSet(u32::MAX).iter().collect();
        for set in sets() {
            states.push(DirState::Shared(set));
            states.push(DirState::AwaitAcks { waiting: set, requester: Requester::Home, upgrade: false });
            for &node in nodes.iter().filter(|&&node| !set.contains(node)) {
                for upgrade in [false, true] {
                    states.push(DirState::AwaitAcks { waiting: set, requester: Requester::Node(node), upgrade });
                }
            }
        }
        for &owner in &nodes {
            states.push(DirState::Exclusive(owner));
            let others = nodes.iter().filter(|&&node| node != owner).map(|&node| Requester::Node(node));
            for requester in others.chain([Requester::Home]) {
                states.push(DirState::RecallRead { owner, requester });
                states.push(DirState::RecallWrite { owner, requester });
            }
        }
        states
    }

    #[test]
    fn every_state_has_its_own_encoding() {
        let states = states();
        assert!(states.len() > 4000);
        let mut seen = std::collections::HashSet::new();
        for state in states {
            let entry = DirEntry::encode(state);
            assert_eq!(entry.decode(), Some(state));
            assert!(seen.insert(bytes(entry)), "{state:?}");
        }
    }

    #[test]
    fn zero_bytes_are_idle() {
        assert_eq!(bytes(DirEntry::IDLE), [0; 8]);
        assert_eq!(bytes(DirEntry::default()), [0; 8]);
        assert_eq!(DirEntry::IDLE.decode(), Some(DirState::Idle));
    }

    #[test]
    fn the_seventh_sharer_makes_it_a_vector() {
        let six = NodeSet(0b10_1111_1000);
        assert_eq!(bytes(DirEntry::encode(DirState::Shared(six))), [1, 0, 4, 5, 6, 7, 8, 10]);
        let seven = six.with(node(31));
        assert_eq!(bytes(DirEntry::encode(DirState::Shared(seven))), [0x81, 0, 0xf8, 0x02, 0, 0x80, 0, 0]);
    }

    #[test]
    fn corrupt_entries_are_refused() {
        for bad in [
            [7, 0, 0, 0, 0, 0, 0, 0],            // no such kind
            [0, 0, 1, 0, 0, 0, 0, 0],            // Idle with a sharer
            [0, 1, 0, 0, 0, 0, 0, 0],            // Idle with a requester
            [1, 0, 0, 0, 0, 0, 0, 0],            // Shared by nobody
            [1, 0, 33, 0, 0, 0, 0, 0],           // node 32
            [1, 0, 2, 1, 0, 0, 0, 0],            // not ascending
            [1, 0, 1, 1, 0, 0, 0, 0],            // repeated
            [1, 0, 0, 1, 0, 0, 0, 0],            // gap
            [2, 0, 1, 2, 0, 0, 0, 0],            // two owners
            [3, 0, 1, 0, 0, 0, 0, 0],            // nobody asked
            [3, 1, 1, 0, 0, 0, 0, 0],            // the requester must acknowledge to itself
            [4, 255, 1, 0, 0, 0, 0, 0],          // the home needs no UpgradeAck
            [5, 33, 1, 0, 0, 0, 0, 0],           // requester 32
            [0x81, 0, 1, 0, 0, 0, 0, 0],         // a vector of one
            [0x81, 0, 255, 255, 255, 255, 1, 0], // rubbish behind the vector
            [0x82, 0, 255, 255, 255, 255, 0, 0], // many owners
        ] {
            assert_eq!(from_bytes(bad).decode(), None, "{bad:?}");
        }
    }

    /// Whatever the bytes: decoding does not panic, and what is accepted encodes to the same bytes.
    #[test]
    fn decode_accepts_only_canonical_bytes() {
        let mut seed: u64 = 1;
        let mut accepted = 0;
        for _ in 0..1_000_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let mut raw = (seed >> 3 ^ seed >> 29).to_le_bytes();
            raw[0] &= 0x87;
            for byte in &mut raw[1..] {
                *byte &= 0x23;
            }
            if let Some(state) = from_bytes(raw).decode() {
                accepted += 1;
                assert_eq!(bytes(DirEntry::encode(state)), raw);
            }
        }
        assert!(accepted > 100, "{accepted}");
    }
}
