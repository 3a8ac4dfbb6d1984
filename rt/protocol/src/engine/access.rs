//! Misses and messages.
//!
//! Purpose: [`Engine::acquire`] makes a block of an access accessible; [`Engine::message`] handles what others say of a block. Input: accesses and messages, from
//! whoever has the node. Output: tags, data and messages, through the [`Port`]. Nothing here waits: who called waits until [`Engine::is_granted`].
//!
//! **Invariants**
//! * *The access comes before the next event of its blocks.* A block that was found or made accessible for the access in progress is *pinned* until the next
//!   entry into the runtime. Messages for a pinned block, and all later ones for a block that has a message put aside, go to the queue `held`, which the next
//!   entry handles first.
//! * *No circular waits.* The blocks of one access are acquired in ascending order, so whoever holds messages back waits only for higher blocks than those.
//! * *Requests ahead* are made after the one that the access waits for, never for a block that is pinned or has a message put aside, and hold nothing back: a
//!   block that they bring may be taken away before it is used.
//! * A *block* is what changes hands together, as its allocation or `--block-size` says: a power of two of minimum blocks, which have a tag each.

use crate::bugs::has_bug;
use crate::engine::miss_history::MissHistory;
use crate::engine::pages::Pages;
use crate::ids::{Block, Data, NodeId};
use crate::list::Protocols;
use crate::port::{BlockSite, MESSAGES, Port, ProtocolId};
use crate::protocol::env::Env;
use crate::protocol::messages::{Incoming, PUSH, reject};
use crate::protocol::parts::Parts;
use crate::protocol::pins::Pins;
use crate::protocol::seam::Idled;
use crate::storage::{Queue, Storage, Zeroed};
use crate::tag::Tag;
use blizzard_contract::{BLOCK_BYTES, BLOCK_SHIFT, Counter, RegionHeader};

/// A message of the engine or of a protocol, as it is put aside.
#[derive(Clone, Copy)]
struct Held {
    addr: u64,
    from: u16,
    number: u16,
    has_data: u32,
    data: Data,
}

// SAFETY: integers.
unsafe impl Zeroed for Held {}

/// What an access has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessProgress {
    /// The block allows it.
    Done,
    /// Wait until [`Engine::is_granted`], then call [`Engine::go_on`].
    Waits,
}

/// The access that waits.
#[derive(Clone, Copy)]
struct Waiting {
    block: Block,
    store: bool,
    /// It has joined a request that was outstanding.
    joined: bool,
}

/// The coherence state of one node.
pub struct Engine<M: Storage> {
    pub(crate) protocols: Protocols<M>,
    pub pins: Pins,
    parts: Parts<M>,
    /// Messages put aside, in order of arrival.
    held: Queue<Held, M>,
    pub(crate) pages: Pages<M>,
    /// The misses that waited, and what is likely to follow them.
    pub history: MissHistory<M>,
    waiting: Waiting,
}

impl<M: Storage> Engine<M> {
    /// The state of a node that has used nothing yet, in a run with that header, whose blocks that protocol serves.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(protocol: ProtocolId, header: &RegionHeader) -> Result<Engine<M>, M::Error> {
        Ok(Engine {
            protocols: Protocols::new(protocol, header.segment_bytes >> BLOCK_SHIFT, header.nodes)?,
            pins: Pins::NONE,
            parts: Parts::new(header.nodes)?,
            held: Queue::new(),
            pages: Pages::new(header.stache_pages, header.segment_bytes)?,
            history: MissHistory::new(header.look_ahead, header.ring_slots)?,
            waiting: Waiting { block: Block::of(0), store: false, joined: false },
        })
    }

    #[inline]
    pub(crate) fn parts<'a, P>(&'a mut self, port: &'a mut P) -> (&'a mut Protocols<M>, Env<'a, M, P>) {
        let Engine { protocols, pins, parts, .. } = self;
        (protocols, Env { port, pins, parts })
    }

    /// Whether this node waits for an answer about the block.
    pub fn is_outstanding(&self, site: &BlockSite) -> bool {
        self.protocols.is_outstanding(site)
    }

    /// Whether a message about the block, or a part of its data, was put aside.
    pub(crate) fn is_held(&self, port: &impl Port, block: Block) -> bool {
        self.held.iter().any(|held| held.addr & !(port.block_bytes(held.addr) - 1) == block.addr())
    }

    /// Whether no event of any block waits for anything.
    #[inline]
    fn is_at_rest(&self) -> bool {
        self.held.is_empty() && self.protocols.is_at_rest()
    }

    /// Forgets the access before: its instruction has been executed. Then handles what it held up.
    #[inline]
    pub fn end_last_access<P: Port>(&mut self, port: &mut P) {
        self.pins.clear();
        if !self.is_at_rest() {
            self.catch_up(port);
        }
    }

    #[inline(never)]
    fn catch_up<P: Port>(&mut self, port: &mut P) {
        for _ in 0..self.held.len() {
            let Some(held) = self.held.pop() else { break };
            let Some(from) = NodeId::new(held.from.into()) else { continue };
            let data = (held.has_data != 0).then_some(&held.data);
            match port.site(held.addr) {
                Some(site) => self.event_of_before(port, &site, (from, held.number, held.addr), data),
                None => reject(port),
            }
        }
        self.resume(port);
    }

    pub(crate) fn resume<P: Port>(&mut self, port: &mut P) {
        let (protocols, mut env) = self.parts(port);
        protocols.resume(&mut env);
    }

    /// Whether something waits for the access in progress to be executed.
    #[inline]
    pub fn holds_work(&self) -> bool {
        !self.is_at_rest() && self.has_held_work()
    }

    #[inline(never)]
    fn has_held_work(&self) -> bool {
        !self.held.is_empty() || self.protocols.has_put_off_work(&self.pins)
    }

    /// Whether another node may be held up until this one has taken an answer out of its rings, for which nobody rings its doorbell.
    pub fn owes_answer(&self) -> bool {
        self.protocols.owes_answer()
    }

    /// Whether any request of this node is not answered, or an answer has left something to do.
    pub fn has_outstanding(&self) -> bool {
        self.protocols.has_outstanding()
    }

    /// Nothing has arrived during a step of a wait.
    pub fn idle<P: Port>(&mut self, port: &mut P, idled: Idled) {
        let (protocols, mut env) = self.parts(port);
        protocols.idle(&mut env, idled);
    }

    /// The longest sleep in a wait, in ns.
    pub fn longest_sleep(&self) -> u64 {
        self.protocols.longest_sleep()
    }

    /// After how many looks in vain [`Engine::idle`] is to be called.
    #[inline]
    pub fn patience(&self) -> u32 {
        self.protocols.patience()
    }

    /// Whether the block that the access waits for has been granted.
    #[inline]
    pub fn is_granted(&self) -> bool {
        self.pins.is_granted()
    }

    /// Memory with that protocol has been handed out: this node may use it from here on.
    pub fn serve(&mut self, port: &impl Port, protocol: ProtocolId) {
        self.protocols.serve(port, protocol);
    }

    /// Makes one block accessible, whose tag does not allow the access, and whose home this node knows; its protocol was [served](Engine::serve) before. When it is done the caller pins it.
    pub fn acquire<P: Port>(&mut self, port: &mut P, site: &BlockSite, store: bool) -> AccessProgress {
        let tag = self.parts(port).1.tag(site.block);
        port.count(match (store, tag) {
            (true, Tag::ReadOnly) => Counter::Upgrades,
            (true, _) => Counter::WriteMisses,
            (false, _) => Counter::ReadMisses,
        });
        self.note_page(port, site);
        let joins = self.protocols.joins(site);
        if joins {
            // The guess was right.
            self.pins.acquire(site.block);
            self.ask_ahead(port);
            self.waiting = Waiting { block: site.block, store, joined: true };
            return AccessProgress::Waits;
        }
        self.start_miss(port, site, store)
    }

    #[inline(always)]
    fn start_miss<P: Port>(&mut self, port: &mut P, site: &BlockSite, store: bool) -> AccessProgress {
        self.pins.acquire(site.block);
        let (protocols, mut env) = self.parts(port);
        protocols.miss(&mut env, site, store);
        if self.pins.is_granted() {
            check_granted(port, site.block, store);
            return AccessProgress::Done;
        }
        self.waiting = Waiting { block: site.block, store, joined: false };
        self.follow_history(port, site.block, store);
        AccessProgress::Waits
    }

    /// The access that waited has been granted its block.
    #[inline]
    pub fn go_on<P: Port>(&mut self, port: &mut P) -> AccessProgress {
        let Waiting { block, store, joined } = self.waiting;
        if joined {
            return self.go_on_joined(port);
        }
        check_granted(port, block, store);
        AccessProgress::Done
    }

    #[inline(never)]
    fn go_on_joined<P: Port>(&mut self, port: &mut P) -> AccessProgress {
        let Waiting { block, store, .. } = self.waiting;
        if port.allows(block, store) || has_bug!(port, JoinsAnyRequest) {
            return AccessProgress::Done;
        }
        // It was asked for to load from, and the access stores. Nothing was put aside for it meanwhile: the wait ended with the grant. If an
        // invalidation had been put aside, the home would not have answered. At its home, requests of others may have waited for the block; the store
        // that comes now waits behind them, so they go on first.
        self.pins.release();
        self.resume(port);
        let site = self.parts(port).1.site(block.addr());
        self.start_miss(port, &site, store)
    }

    /// Handles a message about a block, or puts it aside: number `number` from node `from`, about the minimum block at `addr`.
    #[inline]
    pub fn message<P: Port>(&mut self, port: &mut P, from: NodeId, number: u16, addr: u64, data: Option<&Data>) {
        let Some(site) = port.site(addr) else { return self.message_too_early(port, (from, number, addr), data) };
        // A push changes no tag, and the access in progress has not loaded yet.
        if (self.pins.contains(site.block) && number != PUSH)
            || (!self.held.is_empty() && self.is_held(port, site.block))
        {
            return self.put_aside(port, (from, number, addr), data);
        }
        self.event(port, &site, (from, number, addr), data);
    }

    /// This node is the home of the page, and will be told so.
    #[cold]
    fn message_too_early<P: Port>(&mut self, port: &mut P, message: (NodeId, u16, u64), data: Option<&Data>) {
        if !port.is_home_unknown(message.2) {
            return reject(port);
        }
        if !has_bug!(port, EarlyMessageIsDropped) {
            self.put_aside(port, message, data);
        }
    }

    #[inline(never)]
    fn put_aside(&mut self, port: &impl Port, (from, number, addr): (NodeId, u16, u64), data: Option<&Data>) {
        let has_data = data.is_some().into();
        let data = data.copied().unwrap_or_default();
        if self.held.push(Held { addr, from: from.index() as u16, number, has_data, data }).is_err() {
            port.fail(format_args!("no memory to put a message aside"));
        }
    }

    /// [`Engine::event`] of a message that was put aside.
    #[inline(never)]
    fn event_of_before<P: Port>(
        &mut self,
        port: &mut P,
        site: &BlockSite,
        message: (NodeId, u16, u64),
        data: Option<&Data>,
    ) {
        self.event(port, site, message, data);
    }

    /// A message about a block that is not pinned: a part of its data, or something for its protocol.
    #[inline(always)]
    fn event<P: Port>(
        &mut self,
        port: &mut P,
        site: &BlockSite,
        (from, number, addr): (NodeId, u16, u64),
        data: Option<&Data>,
    ) {
        if number >= PUSH {
            return match number {
                PUSH => self.push_arrived(port, site, from, addr, data),
                _ => self.part_arrived(port, site, from, addr, data),
            };
        }
        // Only data follows its parts.
        if data.is_some() && site.bytes != BLOCK_BYTES {
            let source = if has_bug!(port, PartsInOnePlace) { NodeId::FIRST } else { from };
            if !self.parts.completes(source, site.block.addr(), site.bytes / BLOCK_BYTES) {
                return reject(port);
            }
        }
        let kind = (number % MESSAGES) as u8;
        let Engine { protocols, pins, parts, pages, .. } = self;
        let message = Incoming { from, kind, data, keeps_page: true };
        protocols.message(&mut Env { port, pins, parts }, site, &message, || pages.keeps(site.block));
    }

    #[inline(never)]
    fn part_arrived(&mut self, port: &impl Port, site: &BlockSite, from: NodeId, addr: u64, data: Option<&Data>) {
        let source = if has_bug!(port, PartsInOnePlace) { NodeId::FIRST } else { from };
        let block = site.block.addr();
        let place = ((addr - block) / BLOCK_BYTES, site.bytes / BLOCK_BYTES);
        if !data.is_some_and(|data| self.parts.arrives(source, block, place, data)) {
            reject(port);
        }
    }
}

impl<M: Storage> Engine<M> {
    #[inline(never)]
    fn push_arrived<P: Port>(&mut self, port: &mut P, site: &BlockSite, from: NodeId, addr: u64, data: Option<&Data>) {
        let Some(data) = data.filter(|_| site.home == from) else { return reject(port) };
        let (protocols, mut env) = self.parts(port);
        protocols.pushed(&mut env, site, Block::of(addr), data);
    }

    /// Whether any protocol that serves blocks has something to flush.
    #[inline]
    pub fn flushes(&self) -> bool {
        self.protocols.flushes()
    }

    /// The program tells others that it has stored: sends what protocols keep until then.
    #[inline]
    pub fn flush<P: Port>(&mut self, port: &mut P) {
        let (protocols, mut env) = self.parts(port);
        protocols.flush(&mut env);
    }

    /// The program is about to store to a block until the next barrier of all nodes. True: it need not be acquired before it is missed.
    pub fn begin_to_store<P: Port>(&mut self, port: &mut P, block: Block) -> bool {
        let Some(site) = port.site(block.addr()) else { return false };
        let (protocols, mut env) = self.parts(port);
        protocols.begin_to_store(&mut env, &site)
    }

    /// The node is about to enter a barrier of all nodes, in front of which there is a fence.
    #[inline]
    pub fn round_ends<P: Port>(&mut self, port: &mut P) {
        let (protocols, mut env) = self.parts(port);
        protocols.round_ends(&mut env);
    }

    /// That barrier is over.
    #[inline]
    pub fn round_begins<P: Port>(&mut self, port: &mut P) {
        let (protocols, mut env) = self.parts(port);
        protocols.round_begins(&mut env);
    }

    /// Memory with that protocol is handed out again.
    pub fn forget<P: Port>(&mut self, port: &mut P, protocol: ProtocolId, addr: u64, bytes: u64) {
        let (protocols, mut env) = self.parts(port);
        protocols.forget(&mut env, protocol, addr, bytes);
    }

    /// [`Protocol::is_leaving`](crate::protocol::seam::Protocol::is_leaving).
    pub fn is_leaving(&self, k: u64) -> Option<bool> {
        self.protocols.is_leaving(k)
    }
}

#[inline]
fn check_granted(port: &impl Port, block: Block, store: bool) {
    if !port.allows(block, store) {
        port.fail(format_args!("protocol error: block {:#x} was granted without its tag", block.addr()));
    }
}
