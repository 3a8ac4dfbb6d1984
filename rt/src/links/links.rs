//! What a node is connected with: its copy of the segment, the homes of its pages, and its peers.
//!
//! Purpose: [`Links`] is the coherence engine's [`Port`], and sends the messages of everybody else. Input and output: addresses of the segment, messages.
//! Nothing here decides, and nothing waits.
//! **Invariant**: a message of a node to itself is handled when the handler that sent it has returned: it waits in `to_self`.

use crate::kernel::own_memory::{KernelQueue, KernelTable, Zeroed};
use crate::kernel::sys;
#[cfg(any(feature = "planted", test))]
use crate::links::bugs;
use crate::links::ending;
use crate::links::instruments::{self, MissStep};
use crate::links::members::{self, Members};
use crate::links::pushes::{PushPiece, Pushes};
use crate::memory::homes::{BlockPlace, HomeTable, Homes, PAGE_BYTES};
use crate::memory::hosts::Hosts;
use crate::memory::region::{ContextPage, Region};
use crate::memory::tags::Space;
use crate::messages::kinds::{self, id};
use crate::transport::endpoint::Transport;
use crate::transport::interface::Urgency;
use crate::transport::message::Message;
use blizzard_contract::{BLOCK_BYTES, Counter};
#[cfg(any(feature = "planted", test))]
use blizzard_protocol::bugs::Bug;
use blizzard_protocol::ids::{Block, Data, NodeId, NodeSet};
use blizzard_protocol::operation::Operation;
use blizzard_protocol::port::{BlockSite, Port, Rounds};
use blizzard_protocol::protocol::messages::PUSH;
use blizzard_protocol::tag::Tag;
use core::fmt;

/// Number of an operation; 0: none.
#[derive(Clone, Copy)]
struct PageOperation(u8);

// SAFETY: an integer.
unsafe impl Zeroed for PageOperation {}

/// The segment, the homes and the peers of one node.
pub struct Links {
    pub me: NodeId,
    pub region: Region,
    pub context: ContextPage,
    pub space: Space,
    pub homes: Homes,
    pub home_table: HomeTable,
    pub hosts: Hosts,
    pub transport: Transport,
    pub members: Members,
    /// Nodes that this one has written to, or pushed to, since its last fence.
    pub written: NodeSet,
    /// Of the flush in progress.
    pushes: Pushes,
    /// Barriers of all nodes.
    pub rounds: Rounds,
    /// By page: what its elements are combined by.
    operations: KernelTable<PageOperation>,
    /// Messages of this node to itself, not handled yet.
    to_self: KernelQueue<Message>,
}

impl Port for Links {
    #[inline]
    fn me(&self) -> NodeId {
        self.me
    }

    #[inline]
    fn site(&self, addr: u64) -> Option<BlockSite> {
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
        self.members.began_at_node_0(&self.homes, self.me, page)
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
        instruments::stamp(&self.context, MissStep::Tagged);
    }

    #[inline]
    fn read(&self, block: Block) -> Data {
        self.space.read(block)
    }

    #[inline]
    fn write(&self, block: Block, data: &Data) {
        self.space.write(block, data);
        instruments::stamp(&self.context, MissStep::Copied);
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
            None => instruments::stamp(&self.context, MissStep::LookedUp),
        }
        let kind = kinds::urgency_about_block(number);
        if !self.transport.send_block(to, (number, block.addr(), words), data, kind) {
            self.queue(to, number, block, data);
        }
        instruments::stamp(&self.context, MissStep::Sent);
    }

    fn push(&mut self, to: NodeId, block: Block, data: &Data) {
        self.written = self.written.with(to);
        if let Some(piece) = self.pushes.take_full(to) {
            self.post_piece(to, piece);
        }
        if !self.pushes.add(&self.region, [self.me, to], block, data) {
            Port::send(self, to, PUSH, block, Some(data));
        }
        Links::count(self, Counter::BlocksPushed);
    }

    fn fence(&mut self, to: NodeId) {
        self.written = self.written.with(to);
    }

    fn rounds(&self) -> Rounds {
        self.rounds
    }

    fn operation(&self, block: Block) -> Option<Operation> {
        Operation::from_number(self.operations.get(self.space.number(block) * BLOCK_BYTES / PAGE_BYTES).0.into())
    }

    #[inline]
    fn count(&self, counter: Counter) {
        Links::count(self, counter);
    }

    #[cold]
    fn fail(&self, message: fmt::Arguments<'_>) -> ! {
        Links::fail(self, message)
    }

    #[cfg(any(feature = "planted", test))]
    fn bug(&self) -> Option<Bug> {
        bugs::bug(&self.context)
    }
}

impl Links {
    /// The links of node `me`.
    ///
    /// # Safety
    /// Nobody else is that node; region and space stay mapped; all tags of the space are Invalid and its memory zero.
    pub unsafe fn new(region: Region, me: NodeId, space: Space) -> sys::Result<Links> {
        let homes = Homes::new(region.header().nodes, space.bytes(), region.defaults());
        let space = space.with_partition(*homes.partition());
        let homes = homes.among(members::homes_present(&region));
        // A program that creates its nodes has used its pages at node 0, where their data stays.
        let migrates = region.header().forks == 0;
        Ok(Links {
            me,
            region,
            context: region.context(me),
            space,
            home_table: HomeTable::new(migrates, &homes)?,
            homes,
            hosts: Hosts::of(&region),
            // SAFETY: passed on from the caller.
            transport: unsafe { Transport::new(region, me) }?,
            members: Members::new(&region),
            written: NodeSet::EMPTY,
            pushes: Pushes::new(region.header().nodes)?,
            rounds: Rounds::default(),
            operations: KernelTable::new(space.bytes() / PAGE_BYTES)?,
            to_self: KernelQueue::new(),
        })
    }

    /// Node 0, which manages collectives and publish slots.
    pub fn manager(&self) -> NodeId {
        NodeId::FIRST
    }

    /// How many nodes there are. In a run whose nodes are created node 0 alone knows; others say how many there can be.
    pub fn participants(&self) -> u32 {
        self.members.count(self.me).unwrap_or(self.homes.nodes())
    }

    /// Notes what elements of whole pages are combined by.
    pub fn set_operation(&mut self, (addr, bytes): (u64, u64), operation: Operation) {
        for page in (addr..addr + bytes).step_by(PAGE_BYTES as usize) {
            let number = self.space.number(Block::of(page)) * BLOCK_BYTES / PAGE_BYTES;
            self.operations.set(number, PageOperation(operation.number() as u8));
        }
    }

    /// From here on pushes are collected.
    pub fn begin_flush(&mut self) {
        self.pushes.begin();
    }

    /// What is collected goes; the caller waits for those who get it.
    pub fn end_flush(&mut self) {
        self.pushes.end();
        for to in (0..self.homes.nodes()).filter_map(NodeId::new) {
            if let Some(piece) = self.pushes.take(to) {
                self.post_piece(to, piece);
            }
        }
    }

    fn post_piece(&mut self, to: NodeId, piece: PushPiece) {
        self.context.add_unlocked(Counter::BytesSent, piece.bytes());
        let args = [piece.place, piece.blocks, 0];
        self.post(to, Message { handler: id::BLOCK_PUSHES, args, ..Message::default() });
    }

    /// Counts one event.
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.context.add_unlocked(counter, 1);
    }

    /// Sends a message; one to this node itself is handled soon.
    pub fn post(&mut self, to: NodeId, mut message: Message) {
        message.source = self.me.index() as u16;
        if to != self.me {
            self.send_as(to, message, kinds::urgency(message.handler));
        } else if let Err(e) = self.to_self.push(message) {
            self.fail(format_args!("no memory for a message of this node to itself: {e}"));
        }
    }

    /// The next message of this node to itself.
    pub fn take_own(&mut self) -> Option<Message> {
        self.to_self.pop()
    }

    /// Sends a message to another node, which is to hear of it so soon.
    pub fn send_as(&mut self, to: NodeId, message: Message, kind: Urgency) {
        instruments::boundary(&self.context);
        if let Err(e) = self.transport.send(to, message, kind) {
            self.fail(format_args!("no memory to buffer a message to node {}: {e}", to.index()));
        }
    }

    /// Reports an error and ends the run.
    #[cold]
    pub fn fail(&self, message: fmt::Arguments<'_>) -> ! {
        self.fail_at(0, message)
    }

    /// [`Links::fail`], because of what is at an address.
    pub fn fail_at(&self, addr: u64, message: fmt::Arguments<'_>) -> ! {
        ending::fail_run(&self.region, self.context, ending::EXIT_FAILED, addr, message)
    }

    /// The block of an address, whose place is known.
    #[inline]
    pub fn site_at(&self, addr: u64, place: BlockPlace) -> BlockSite {
        let bytes = place.block.bytes();
        BlockSite { block: Block::of(addr & !(bytes - 1)), bytes, home: place.home, protocol: place.protocol }
    }

    /// Sends what has to wait in this node's memory.
    #[inline(never)]
    fn queue(&mut self, to: NodeId, number: u16, block: Block, data: Option<&Data>) {
        let length = if data.is_some() { BLOCK_BYTES as u8 } else { 0 };
        let data = data.copied().unwrap_or_default();
        let message = Message { handler: number, addr: block.addr(), length, data, ..Message::default() };
        if let Err(e) = self.transport.send(to, message, kinds::urgency_about_block(number)) {
            self.fail(format_args!("no memory to buffer a message to node {}: {e}", to.index()));
        }
    }
}
