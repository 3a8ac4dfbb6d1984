//! The port: all that engine and protocols know of the node around them.
//!
//! Purpose: the seam between a protocol and what carries it out. Input: addresses of the segment, as programs use them on every node. Who
//! implements [`Port`] maps memory, tags, homes and channels to it: the runtime's node, or a model.
//!
//! **Invariants that the implementer keeps**
//! * Only the node's own thread calls, and changes its tags.
//! * Channels are reliable, and deliver the messages about one block from one node to another in the order of sending.
//! * No function waits. A message that cannot leave is kept, in order, behind what waits already.

use crate::bugs::Bug;
use crate::ids::{Block, Data, NodeId};
use crate::operation::Operation;
use crate::tag::Tag;
use blizzard_contract::Counter;
use core::fmt;

/// Number of a protocol, see [`crate::list`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolId(pub(crate) u8);

/// Numbers of messages that each protocol has.
pub const MESSAGES: u16 = 16;

impl ProtocolId {
    /// The number that a message of this protocol has among all messages.
    #[inline]
    pub const fn number_of(self, kind: u8) -> u16 {
        self.0 as u16 * MESSAGES + kind as u16
    }
}

/// A block, and what its allocation says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSite {
    pub block: Block,
    /// How many bytes change hands together: a power of two of minimum blocks.
    pub bytes: u64,
    pub home: NodeId,
    pub protocol: ProtocolId,
}

/// Barriers of all nodes, as one node counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    pub entered: u64,
    /// The last one is not over, as far as this node knows.
    pub waits: bool,
}

/// A node, as engine and protocols see it.
pub trait Port {
    fn me(&self) -> NodeId;

    /// The block of an address; `None` when it belongs to nobody, or this node does not know its home.
    fn site(&self, addr: u64) -> Option<BlockSite>;

    /// Whether this node does not know yet who the home of an address is. Cheaper than [`Port::site`].
    fn is_home_unknown(&self, addr: u64) -> bool;

    /// Bytes of the block that holds an address.
    fn block_bytes(&self, addr: u64) -> u64;

    /// Number of a minimum block, counted from the segment's start.
    fn number(&self, block: Block) -> u64;

    /// Whether node 0 had used a page before this node, its home, was created.
    fn began_at_node_0(&self, page: u64) -> bool;

    /// The tag of a minimum block; `None` when the byte is no tag, which means that the table was overwritten.
    fn tag(&self, block: Block) -> Option<Tag>;

    /// Whether the tag allows the access now. Outside the segment everything is allowed.
    fn allows(&self, block: Block, store: bool) -> bool;

    /// Sets the tags of all minimum blocks of a block of so many bytes.
    fn set_tags(&self, block: Block, bytes: u64, tag: Tag);

    /// The data of a minimum block in the node's own copy.
    fn read(&self, block: Block) -> Data;

    /// Replaces them.
    fn write(&self, block: Block, data: &Data);

    /// Gives the memory of whole pages back: all their blocks are Invalid. They read as zero afterwards.
    fn discard(&self, addr: u64, bytes: u64);

    /// Sends a message about a minimum block to another node.
    fn send(&mut self, to: NodeId, number: u16, block: Block, data: Option<&Data>);

    /// Sends the data of a minimum block of this home to a node that has a copy, as a [`PUSH`](crate::protocol::messages::PUSH) in the order of messages, at the
    /// latest when the engine's flush returns.
    fn push(&mut self, to: NodeId, block: Block, data: &Data);

    /// The next fence of this node is answered by that one, too.
    fn fence(&mut self, to: NodeId);

    /// The barriers of all nodes, as this node counts them.
    fn rounds(&self) -> Rounds;

    /// What blocks of the page are combined by; `None`: nobody has said so.
    fn operation(&self, block: Block) -> Option<Operation>;

    fn count(&self, counter: Counter);

    /// Reports an error and ends the run.
    fn fail(&self, message: fmt::Arguments<'_>) -> !;

    /// The planted bug of this node.
    fn bug(&self) -> Option<Bug> {
        None
    }
}
