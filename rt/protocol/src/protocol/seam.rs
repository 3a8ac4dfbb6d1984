//! The seam between the engine and a protocol.
//!
//! Input: misses, messages, barriers and idle times, each with an [`Env`]. Output: what the protocol does by that `Env`: tags, messages, grants.
//!
//! A protocol owns the states of its blocks and the meaning of its messages. All that it does not own is the engine's: which blocks are pinned, messages put
//! aside, blocks larger than a message, requests ahead, replacement, first touch.

use crate::ids::{Block, Data, NodeId, PAGE_BYTES};
use crate::port::{BlockSite, Port};
use crate::protocol::env::Env;
use crate::protocol::messages::{Incoming, reject};
use crate::protocol::pins::Pins;
use crate::storage::Storage;
use crate::tag::Tag;

/// Requests that a node may have outstanding besides the miss that it waits for.
pub const PREFETCHES: usize = blizzard_contract::LOOK_AHEAD as usize;

/// A coherence protocol: the states of the blocks that it serves, on one node.
///
/// Its folder has the rows of its messages as `MESSAGES`: message `n` at place `n - 1`. Everything is called on the node's own thread, for blocks that the
/// protocol serves. No function waits.
pub trait Protocol<M: Storage>: Sized {
    /// The state of a node that has used nothing yet, for so many minimum blocks, in a run of so many nodes.
    ///
    /// # Errors
    /// There is no memory.
    fn new(blocks: u64, nodes: u32) -> Result<Self, M::Error>;

    /// A tag does not allow the access in progress: steps the miss. Sooner or later the block is granted ([`Env::grant`]).
    fn miss<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, store: bool);

    /// A message about a block that is not pinned.
    fn message<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, message: &Incoming<'_>);

    /// Whether nothing waits for the next entry into the runtime: then `resume` need not be called.
    fn is_at_rest(&self) -> bool;

    /// The access before is over: steps what was put off because of it.
    fn resume<P: Port>(&mut self, env: &mut Env<'_, M, P>);

    /// The memory of a system call is complete: what is here stays until somebody wants it.
    fn keep(&mut self) {}

    /// Whether there is something to do, or to look for, at the next poll.
    fn has_put_off_work(&self, pins: &Pins) -> bool;

    /// Gives a copy back. The block has another home and is not in use.
    fn evict<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite);

    /// Whether anything of the block is outstanding, or left to do.
    fn is_outstanding(&self, block: Block) -> bool;

    /// Whether anything of any block is.
    fn has_outstanding(&self) -> bool;

    /// Whether it makes sense to ask for a block before it is missed. A protocol without requests ahead has this and the next two functions as they are.
    fn is_worth_asking(&self, _port: &impl Port, _site: &BlockSite) -> bool {
        false
    }

    /// Whether one more such request may be outstanding.
    fn may_ask(&self) -> bool {
        false
    }

    /// Asks for a block that nobody waits for yet.
    fn ask<P: Port>(&mut self, _env: &mut Env<'_, M, P>, _site: &BlockSite, _store: bool) {}

    /// Whether a miss waits for the answer to an outstanding request instead of making its own.
    fn joins(&self, _block: Block) -> bool {
        false
    }

    /// Whether a home waits for an answer of this node, which depends on an answer that this node waits for, and for which nobody tells it.
    fn owes_answer(&self) -> bool {
        false
    }

    /// After how many looks in vain [`Protocol::idle`] is to be called.
    fn patience(&self) -> u32 {
        u32::MAX
    }

    /// Nothing has arrived in a wait, for so many looks or a sleep.
    fn idle<P: Port>(&mut self, _env: &mut Env<'_, M, P>, _idled: Idled) {}

    /// The longest sleep of a node in a wait, in ns.
    fn longest_sleep(&self) -> u64 {
        u64::MAX
    }

    /// The program tells others that it has stored: what they have copies of goes to them ([`Port::push`]). For protocols that are not sequentially consistent.
    fn flush<P: Port>(&mut self, _env: &mut Env<'_, M, P>) {}

    /// Of the blocks that the last flush found on their way to another node: whether the `k`th still is. None: there are no more.
    fn is_leaving(&self, _k: u64) -> Option<bool> {
        None
    }

    /// The home has pushed these data of a minimum block.
    fn pushed<P: Port>(&mut self, env: &mut Env<'_, M, P>, _site: &BlockSite, _part: Block, _data: &Data) {
        reject(env.port);
    }

    /// The program is about to store to the block until the next barrier of all nodes. True: it need not be acquired before it is missed.
    fn begin_to_store<P: Port>(&mut self, _env: &mut Env<'_, M, P>, _site: &BlockSite) -> bool {
        false
    }

    /// The node is about to enter a barrier of all nodes; a fence follows, for the nodes that [`Port::fence`] names.
    fn round_ends<P: Port>(&mut self, _env: &mut Env<'_, M, P>) {}

    /// The barrier is over.
    fn round_begins<P: Port>(&mut self, _env: &mut Env<'_, M, P>) {}

    /// Memory is handed out again: what this node knows of whole pages is of its old owner. For protocols with operations.
    fn forget<P: Port>(&mut self, _env: &mut Env<'_, M, P>, _addr: u64, _bytes: u64) {}

    /// Whether no other node has a copy of a block of this home, or ever had. `number` is that of its first minimum block.
    fn is_unshared(&self, number: u64) -> bool;

    /// Notes at the home that the only copy of a block is at that node. `number`: as above.
    fn begin_away<P: Port>(&mut self, env: &mut Env<'_, M, P>, number: u64, holder: NodeId);
}

/// What a step of a wait without a message has been.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idled {
    /// Looks at the rings, all in vain.
    pub looks: u32,
    /// The node has slept.
    pub slept: bool,
}

/// At the home, an Invalid tag of an unshared block means that nobody has used its page. Raises the tags of such blocks of the page; or notes that node 0 has
/// had them since before this node existed. No messages.
#[cold]
pub fn first_touch<M: Storage, P: Port>(protocol: &mut impl Protocol<M>, env: &mut Env<'_, M, P>, site: &BlockSite) {
    let page = site.block.addr() & !(PAGE_BYTES - 1);
    let began_away = env.port.began_at_node_0(page);
    for addr in (page..page + PAGE_BYTES).step_by(site.bytes as usize) {
        let block = Block::of(addr);
        let number = env.port.number(block);
        if protocol.is_unshared(number) && env.port.tag(block) == Some(Tag::Invalid) {
            if began_away {
                protocol.begin_away(env, number, NodeId::FIRST);
            } else {
                env.port.set_tags(block, site.bytes, Tag::Writable);
            }
        }
    }
}
