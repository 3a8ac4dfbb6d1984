//! Numbers of nodes, sets of nodes, and addresses of blocks.
//!
//! Input: numbers that came from outside. Output: [`NodeId`], [`NodeSet`], [`Block`]. **Invariants**: a node's number is below [`NAMED_NODES`], the members
//! of a set below its capacity, and a block's address is a multiple of 64. Each set has one form, so sets are compared as words.

use crate::storage::Zeroed;
use blizzard_contract::{BLOCK_BYTES, FEW_NODES, MAX_NODES};

/// Most nodes that a [`NodeId`] can name.
pub const NAMED_NODES: usize = MAX_NODES;

/// Most nodes that this runtime serves.
pub const RUN_NODES: usize = if cfg!(feature = "many_nodes") { MAX_NODES } else { FEW_NODES };

/// Number of a node, below [`NAMED_NODES`]. Those of a run are below its number of nodes: whoever makes one from a number that came from
/// outside checks that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u16);

impl NodeId {
    /// Node 0, which holds what was used before other nodes were created.
    pub const FIRST: NodeId = NodeId(0);

    /// `None` when `number` is not below [`NAMED_NODES`].
    pub const fn new(number: u32) -> Option<NodeId> {
        if number < NAMED_NODES as u32 { Some(NodeId(number as u16)) } else { None }
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Words of the sets of a run: no other layout depends on the greatest number of nodes. A constant, since steps take and give sets by value.
pub const RUN_WORDS: usize = RUN_NODES.div_ceil(64);

/// A set of nodes with numbers below `64 * WORDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeSet<const WORDS: usize = RUN_WORDS>(pub(crate) [u64; WORDS]);

// SAFETY: integers; zero is the empty set.
unsafe impl<const WORDS: usize> Zeroed for NodeSet<WORDS> {}

impl<const WORDS: usize> Default for NodeSet<WORDS> {
    fn default() -> Self {
        NodeSet::EMPTY
    }
}

impl<const WORDS: usize> NodeSet<WORDS> {
    /// Nodes with numbers from here on are in no set.
    pub const CAPACITY: usize = 64 * WORDS;
    pub const EMPTY: Self = NodeSet([0; WORDS]);

    pub const fn of(node: NodeId) -> Self {
        NodeSet::EMPTY.with(node)
    }

    #[must_use]
    pub const fn with(mut self, node: NodeId) -> Self {
        self.0[node.index() / 64] |= 1 << (node.index() % 64);
        self
    }

    #[must_use]
    pub const fn without(mut self, node: NodeId) -> Self {
        self.0[node.index() / 64] &= !(1 << (node.index() % 64));
        self
    }

    pub const fn contains(self, node: NodeId) -> bool {
        node.index() < Self::CAPACITY && self.0[node.index() / 64] >> (node.index() % 64) & 1 == 1
    }

    pub fn is_empty(self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    pub fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The nodes of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        NodeSet(core::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// The nodes of both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        NodeSet(core::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    /// The nodes of this set that are not in the other one.
    #[must_use]
    pub fn difference(self, other: Self) -> Self {
        NodeSet(core::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    /// The nodes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        let mut left = self.0;
        let mut at = 0;
        core::iter::from_fn(move || {
            while at < WORDS && left[at] == 0 {
                at += 1;
            }
            let word = left.get_mut(at)?;
            let lowest = word.trailing_zeros();
            *word &= *word - 1;
            NodeId::new(64 * at as u32 + lowest)
        })
    }

    /// The node that is the set's only member.
    #[inline]
    pub fn only(self) -> Option<NodeId> {
        if let [word] = self.0.as_slice() {
            return if word.is_power_of_two() { NodeId::new(word.trailing_zeros()) } else { None };
        }
        if self.len() == 1 { self.iter().next() } else { None }
    }
}

impl<const WORDS: usize> FromIterator<NodeId> for NodeSet<WORDS> {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        nodes.into_iter().fold(NodeSet::EMPTY, NodeSet::with)
    }
}

/// Bytes of a page: its blocks have one home and one size.
pub const PAGE_BYTES: u64 = 4096;

/// Words of the data of a minimum block.
pub const BLOCK_WORDS: usize = BLOCK_BYTES as usize / 8;

/// The data of a minimum block.
pub type Data = [u64; BLOCK_WORDS];

/// First address of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u64);

impl Block {
    /// The minimum block that holds `addr`.
    pub const fn of(addr: u64) -> Block {
        Block(addr & !(BLOCK_BYTES - 1))
    }

    pub const fn addr(self) -> u64 {
        self.0
    }

    /// The next higher minimum block; `None` at the end of the address space.
    pub const fn next(self) -> Option<Block> {
        match self.0.checked_add(BLOCK_BYTES) {
            Some(addr) => Some(Block(addr)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMED_NODES, NodeId, NodeSet};

    type Large = NodeSet<{ NAMED_NODES / 64 }>;

    fn set(numbers: impl IntoIterator<Item = u32>) -> Large {
        numbers.into_iter().filter_map(NodeId::new).collect()
    }

    #[test]
    fn sets_are_combined_in_all_their_words() {
        let (a, b) = (set([0, 63, 64, 900]), set([63, 64, 1023]));
        assert_eq!(a.union(b), set([0, 63, 64, 900, 1023]));
        assert_eq!(a.intersection(b), set([63, 64]));
        assert_eq!(a.difference(b), set([0, 900]));
        assert_eq!(a.iter().map(NodeId::index).collect::<Vec<_>>(), [0, 63, 64, 900]);
        assert_eq!((a.len(), set([900]).only(), a.only()), (4, NodeId::new(900), None));
    }

    #[test]
    fn node_numbers_are_bounded() {
        assert_eq!(NodeId::new(1023).map(NodeId::index), Some(1023));
        assert_eq!(NodeId::new(1024), None);
    }
}
