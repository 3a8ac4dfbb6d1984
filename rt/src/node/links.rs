//! The node as its coherence engine sees it: tags, memory, homes and rings.
//!
//! Purpose: [`Links`] is the engine's [`Port`]. Input and output: addresses of the segment, messages. Nothing here decides.

use super::Node;
use crate::memory::homes::{HomeTable, Homes, Place};
use crate::memory::region::{Context, Region};
use crate::memory::tags::Space;
use crate::messages;
use crate::node::forks::Forks;
use crate::node::instruments::{self, Step};
use crate::transport::endpoint::Transport;
use crate::transport::message::Message;
use blizzard_contract::{BLOCK_BYTES, Counter};
#[cfg(any(feature = "planted", test))]
use blizzard_protocol::bugs::Bug;
use blizzard_protocol::ids::{Block, Data, NodeId};
use blizzard_protocol::port::{Port, ProtocolId, Site};
use blizzard_protocol::tag::Tag;
use core::fmt;
use core::ops::{Deref, DerefMut};

/// What a node is connected with: its copy of the segment, the homes, and the rings. The engine uses it as its port, everybody else as fields of the [`Node`].
pub struct Links {
    pub me: NodeId,
    /// Of all allocations of the run.
    pub(super) protocol: ProtocolId,
    pub(super) region: Region,
    pub context: Context,
    pub space: Space,
    pub homes: Homes,
    pub home_table: HomeTable,
    pub transport: Transport,
    pub forks: Forks,
}

impl Deref for Node {
    type Target = Links;

    #[inline(always)]
    fn deref(&self) -> &Links {
        &self.links
    }
}

impl DerefMut for Node {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Port for Links {
    #[inline]
    fn me(&self) -> NodeId {
        self.me
    }

    #[inline]
    fn site(&self, addr: u64) -> Option<Site> {
        Some(self.site_at(addr, self.home_table.place(&self.homes, addr)?))
    }

    fn is_home_unknown(&self, addr: u64) -> bool {
        self.home_table.is_unknown(&self.homes, addr)
    }

    #[inline]
    fn block_bytes(&self, addr: u64) -> u64 {
        self.space.block_bytes(addr)
    }

    #[inline]
    fn number(&self, block: Block) -> u64 {
        self.space.number(block)
    }

    fn began_at_node_0(&self, page: u64) -> bool {
        self.forks.began_at_node_0(&self.homes, self.me, page)
    }

    #[inline]
    fn tag(&self, block: Block) -> Option<Tag> {
        self.space.tag(block)
    }

    #[inline]
    fn allows(&self, block: Block, store: bool) -> bool {
        self.space.allows(block, store)
    }

    #[inline]
    fn set_tags(&self, block: Block, bytes: u64, tag: Tag) {
        self.space.set_tags(block, bytes, tag);
        instruments::stamp(&self.context, Step::Tagged);
    }

    #[inline]
    fn read(&self, block: Block) -> Data {
        self.space.read(block)
    }

    #[inline]
    fn write(&self, block: Block, data: &Data) {
        self.space.write(block, data);
        instruments::stamp(&self.context, Step::Copied);
    }

    fn discard(&self, addr: u64, bytes: u64) {
        self.space.discard(addr, bytes);
    }

    #[inline]
    fn send(&mut self, to: NodeId, number: u16, block: Block, data: Option<&Data>) {
        instruments::boundary(&self.context);
        let mut words = [0; 4];
        match data {
            Some(_) => instruments::stamp_answer(&self.context, &mut words),
            None => instruments::stamp(&self.context, Step::LookedUp),
        }
        let kind = messages::urgency_about_block(number);
        if !self.transport.send_block(to, (number, block.addr(), words), data, kind) {
            self.queue(to, number, block, data);
        }
        instruments::stamp(&self.context, Step::Sent);
    }

    #[inline]
    fn count(&self, counter: Counter) {
        self.context.add_alone(counter, 1);
    }

    #[cold]
    fn fail(&self, message: fmt::Arguments<'_>) -> ! {
        super::process::fail_run(&self.region, self.context, super::process::EXIT_FAILED, message)
    }

    #[cfg(any(feature = "planted", test))]
    fn bug(&self) -> Option<Bug> {
        super::planted::bug(&self.context)
    }
}

impl Links {
    /// The block of an address, whose place is known.
    #[inline]
    pub fn site_at(&self, addr: u64, place: Place) -> Site {
        let bytes = place.block.bytes();
        Site { block: Block::of(addr & !(bytes - 1)), bytes, home: place.home, protocol: self.protocol }
    }

    /// Sends what has to wait in this node's memory.
    #[inline(never)]
    fn queue(&mut self, to: NodeId, number: u16, block: Block, data: Option<&Data>) {
        let length = if data.is_some() { BLOCK_BYTES as u8 } else { 0 };
        let data = data.copied().unwrap_or_default();
        let message = Message { handler: number, addr: block.addr(), length, data, ..Message::default() };
        if let Err(e) = self.transport.send(to, message, messages::urgency_about_block(number)) {
            self.fail(format_args!("no memory to buffer a message to node {}: {e}", to.index()));
        }
    }
}
