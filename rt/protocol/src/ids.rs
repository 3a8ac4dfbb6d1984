//! Numbers of nodes and addresses of blocks.

use blizzard_contract::BLOCK_BYTES;

/// Most nodes that a [`NodeId`] can name.
pub const NAMED_NODES: usize = 1024;

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
    use super::NodeId;

    #[test]
    fn node_numbers_are_bounded() {
        assert_eq!(NodeId::new(1023).map(NodeId::index), Some(1023));
        assert_eq!(NodeId::new(1024), None);
    }
}
