//! The seam between the engine and a protocol: what the engine asks of it ([`Protocol`]), and what it offers one ([`Env`]).
//!
//! A protocol owns the states of its blocks and the meaning of its messages. All that it does not own is the engine's: which blocks are pinned, messages put
//! aside, blocks larger than a message, requests ahead, replacement, first touch.

pub mod parts;
pub mod pins;

use crate::ids::{Block, Data, NodeId, PAGE_BYTES};
use crate::planted::has_bug;
use crate::port::{Port, Site};
use crate::storage::Storage;
use crate::tag::Tag;
use blizzard_contract::{BLOCK_BYTES, Counter};
use parts::Parts;
use pins::Pins;

/// Requests that a node may have outstanding besides the miss that it waits for.
pub const PREFETCHES: usize = blizzard_contract::LOOK_AHEAD as usize;

/// Number of the message with a part of a block's data that is not the last.
pub const PART: u16 = 63;

/// One kind of message of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: &'static str,
    /// Whether it goes to the block's home. Otherwise it comes from there.
    pub is_for_home: bool,
    /// Whether the block's data travels with it.
    pub carries_data: bool,
    /// Whether it answers a request, so that its receiver looks for it. Otherwise somebody has to tell the receiver.
    pub is_answer: bool,
}

/// The rows of all messages of a protocol, which are numbered from 1.
macro_rules! rows {
    ($Msg:ident, $names:expr) => {{
        const EMPTY: $crate::protocol::Row =
            $crate::protocol::Row { name: "", is_for_home: false, carries_data: false, is_answer: false };
        let mut rows = [EMPTY; $Msg::ALL.len()];
        let mut at = 0;
        while at < rows.len() {
            let msg = $Msg::ALL[at];
            rows[at] = $crate::protocol::Row {
                name: $names[at],
                is_for_home: msg.is_for_home(),
                carries_data: msg.carries_data(),
                is_answer: msg.is_answer(),
            };
            at += 1;
        }
        rows
    }};
}
pub(crate) use rows;

/// A message about a block.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    pub from: NodeId,
    /// The protocol's own number of it.
    pub kind: u8,
    /// The data, or their last part.
    pub data: Option<&'a Data>,
}

/// The state of a node, and what may be done with it, while something happens to a block.
pub struct Env<'a, M: Storage, P> {
    pub port: &'a mut P,
    pub pins: &'a mut Pins,
    pub(crate) parts: &'a mut Parts<M>,
}

impl<M: Storage, P: Port> Env<'_, M, P> {
    pub fn is_pinned(&self, block: Block) -> bool {
        self.pins.contains(block)
    }

    /// The block allows the access in progress, if that is what this node waits for: from now on it is pinned.
    #[inline]
    pub fn grant(&mut self, block: Block) {
        if has_bug!(self.port, AheadIsGranted) {
            self.pins.grant_any();
        }
        self.pins.grant(block);
    }

    /// The block at an address that has a home which this node knows.
    #[inline]
    pub fn site(&self, addr: u64) -> Site {
        match self.port.site(addr) {
            Some(site) => site,
            None => self.refuse_homeless(addr),
        }
    }

    #[cold]
    fn refuse_homeless(&self, addr: u64) -> ! {
        self.port.fail(format_args!("block {addr:#x} has no home"))
    }

    #[inline]
    pub fn tag(&self, block: Block) -> Tag {
        match self.port.tag(block) {
            Some(tag) => tag,
            None => self.refuse_tag(block),
        }
    }

    #[cold]
    fn refuse_tag(&self, block: Block) -> ! {
        self.port.fail(format_args!("the tag of block {:#x} was overwritten", block.addr()))
    }

    /// Sets the tags of a block.
    #[inline]
    pub fn set_tag(&self, site: &Site, tag: Tag) {
        let bytes = if has_bug!(self.port, TagOfFirstPart) { BLOCK_BYTES } else { site.bytes };
        self.port.set_tags(site.block, bytes, tag);
    }

    /// Writes the data of the message being handled into the own copy: what came before it, and its own, which is the last part.
    #[inline]
    pub fn copy_in(&mut self, site: &Site, data: Option<&Data>) {
        let Some(data) = data else { self.refuse_no_data(site) };
        let last = site.bytes - BLOCK_BYTES;
        if last != 0 {
            self.copy_parts_in(site);
        }
        self.port.write(Block::of(site.block.addr() + last), data);
    }

    #[inline(never)]
    fn copy_parts_in(&mut self, site: &Site) {
        let last = site.bytes / BLOCK_BYTES - 1;
        for part in if has_bug!(self.port, LastPartOnly) { last..last } else { 0..last } {
            let data = self.parts.get(part);
            self.port.write(Block::of(site.block.addr() + part * BLOCK_BYTES), &data);
        }
    }

    #[cold]
    fn refuse_no_data(&self, site: &Site) -> ! {
        self.port.fail(format_args!("protocol error: no data for block {:#x}", site.block.addr()))
    }

    /// Sends a message of the block's protocol to another node; `with_data`: with the bytes of the own copy as they are now.
    #[inline]
    pub fn send(&mut self, to: NodeId, site: &Site, kind: u8, with_data: bool) {
        let number = site.protocol.number_of(kind);
        if !with_data {
            return self.port.send(to, number, site.block, None);
        }
        let last = site.bytes - BLOCK_BYTES;
        if last != 0 {
            self.send_parts(to, site);
        }
        let last = Block::of(site.block.addr() + last);
        let data = self.port.read(last);
        self.port.send(to, number, site.block, Some(&data));
    }

    #[inline(never)]
    fn send_parts(&mut self, to: NodeId, site: &Site) {
        for part in 0..site.bytes / BLOCK_BYTES - 1 {
            let each = Block::of(site.block.addr() + part * BLOCK_BYTES);
            let data = self.port.read(each);
            self.port.send(to, PART, each, Some(&data));
        }
    }
}

/// A coherence protocol: the states of the blocks that it serves, on one node.
///
/// Its folder has the rows of its messages as `MESSAGES`: message `n` at place `n - 1`. Everything is called on the node's own thread, for blocks that the
/// protocol serves. No function waits.
pub trait Protocol<M: Storage>: Sized {
    /// The state of a node that has used nothing yet, for so many minimum blocks.
    ///
    /// # Errors
    /// There is no memory.
    fn new(blocks: u64) -> Result<Self, M::Error>;

    /// A tag does not allow the access in progress: steps the miss. Sooner or later the block is granted ([`Env::grant`]).
    fn miss<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &Site, store: bool);

    /// A message about a block that is not pinned.
    fn message<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &Site, message: &Incoming<'_>);

    /// Whether nothing waits for the next entry into the runtime: then `resume` need not be called.
    fn is_at_rest(&self) -> bool;

    /// The access before is over: steps what was put off because of it.
    fn resume<P: Port>(&mut self, env: &mut Env<'_, M, P>);

    /// Whether there is something to do, or to look for, at the next poll.
    fn has_put_off_work(&self, pins: &Pins) -> bool;

    /// Gives a copy back. The block has another home and is not in use.
    fn evict<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &Site);

    /// Whether anything of the block is outstanding, or left to do.
    fn is_outstanding(&self, block: Block) -> bool;

    /// Whether anything of any block is.
    fn has_outstanding(&self) -> bool;

    /// Whether it makes sense to ask for a block before it is missed, and the protocol knows such requests.
    fn is_worth_asking(&self, port: &impl Port, site: &Site) -> bool;

    /// Whether one more such request may be outstanding.
    fn may_ask(&self) -> bool;

    /// Asks for a block that nobody waits for yet.
    fn ask<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &Site, store: bool);

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

    /// Whether copies of other homes' blocks stay here until they are taken away. Otherwise they make no room for others when they go.
    const KEEPS_COPIES: bool = true;

    /// Whether no other node has a copy of that minimum block of this home, or ever had.
    fn is_unshared(&self, number: u64) -> bool;

    /// Notes at the home that the only copy of a block is at that node.
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
pub fn first_touch<M: Storage, P: Port>(protocol: &mut impl Protocol<M>, env: &mut Env<'_, M, P>, site: &Site) {
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

/// Counts a message that a protocol cannot have been sent.
#[cold]
pub fn reject(port: &impl Port) {
    port.count(Counter::MessagesRejected);
}
