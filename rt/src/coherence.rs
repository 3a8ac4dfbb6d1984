//! Misses: makes blocks accessible by running Stache's step functions on this node.
//!
//! Purpose: [`Node::access`] returns when every block of an access may be used; [`on_message`] is the handler of all protocol
//! messages. Everything that decides is in [`crate::protocol`]; this module holds the state, performs the actions and keeps the rules
//! that the protocol asks of its caller. Input: accesses and messages. Output: tags, data and messages.
//!
//! **Rules and how they are kept.**
//! * *The access comes before the next event of its blocks.* A block that was found or made accessible for the access in progress is
//!   *pinned* until the next entry into the runtime. Messages for a pinned block, and all later ones for a block that has a
//!   message put aside, go to the `held` queue, which the next entry handles first.
//! * *No circular waits.* Blocks of one access are acquired in ascending order, so whoever holds messages back waits only for
//!   higher blocks than those.
//! * *First come, first served at the home.* See [`crate::protocol::defer`].
//! * *Untouched pages.* Tags start Invalid on every node, the home included, while an Idle directory entry means that the home's tag is
//!   Writable. An Invalid tag beside an Idle entry therefore means "never used": the home raises the tags of all such
//!   blocks of the page at the first event, without messages.
//! * *Memory that nobody allocated.* A node knows for each arena up to where memory has been handed out, and asks the arena's
//!   owner when an address is beyond what it knows.

use crate::abi::Counter;
use crate::buffer::{Queue, Table};
use crate::homes::{ArenaId, MAX_ARENAS, PAGE_BYTES};
use crate::msg::id;
use crate::node::Node;
use crate::protocol::defer::Deferred;
use crate::protocol::{Action, Actions, CacheEvent, CacheState, DirEntry, HomeEvent, Msg, NodeId, Tag, stache};
use crate::stats::Wait;
use crate::sys;
use crate::tags::{BLOCK_WORDS, Block};
use crate::transport::Message;

/// Most blocks of a gather or scatter: 16 lanes, each of which may straddle two blocks.
pub const LANE_BLOCKS: usize = 32;
/// Each node has one miss outstanding at most, so that many requests can wait at one home.
const MAX_DEFERRED: usize = crate::abi::MAX_NODES;

/// The blocks that the access in progress has already got.
struct Pins {
    /// Contiguous accesses: all blocks with `first <= block < end`.
    first: u64,
    end: u64,
    /// Gathers and scatters.
    list: [u64; LANE_BLOCKS],
    listed: usize,
}

impl Pins {
    fn contains(&self, block: Block) -> bool {
        let addr = block.addr();
        (self.first <= addr && addr < self.end) || self.list[..self.listed].contains(&addr)
    }
}

/// The coherence state of one node.
pub struct Coherence {
    /// One entry per block of the segment; used for those whose home this node is.
    directory: Table<DirEntry>,
    /// The outstanding miss on a block of another home.
    miss: Option<(Block, CacheState)>,
    /// The block being acquired, and whether it has been granted: from then on it is pinned.
    acquiring: Option<Block>,
    granted: bool,
    pins: Pins,
    /// Messages put aside, in order of arrival.
    held: Queue<Message>,
    /// Requests that found their block busy.
    deferred: Deferred<MAX_DEFERRED>,
    /// By arena: the first address that was never handed out, as far as this node knows.
    limits: [u64; MAX_ARENAS],
}

impl Coherence {
    /// The state of a node that has used nothing yet.
    pub fn new(segment_blocks: u64) -> sys::Result<Coherence> {
        Ok(Coherence {
            directory: Table::new(segment_blocks)?,
            miss: None,
            acquiring: None,
            granted: false,
            pins: Pins { first: 0, end: 0, list: [0; LANE_BLOCKS], listed: 0 },
            held: Queue::new(),
            deferred: Deferred::new(),
            limits: [0; MAX_ARENAS],
        })
    }

    fn is_pinned(&self, block: Block) -> bool {
        self.pins.contains(block) || (self.granted && self.acquiring == Some(block))
    }

    fn is_held(&self, block: Block) -> bool {
        (0..self.held.len()).any(|at| self.held.get(at).is_some_and(|m| m.addr == block.addr()))
    }

    /// Notes that memory below `limit` has been handed out in that arena.
    pub fn learn_limit(&mut self, arena: ArenaId, limit: u64) {
        let known = &mut self.limits[arena.index()];
        *known = limit.max(*known);
    }
}

/// A range of bytes as its first and its last block; `None` when it is empty or wraps around.
fn blocks_of(addr: u64, bytes: u64) -> Option<(Block, Block)> {
    let last = addr.checked_add(bytes.checked_sub(1)?)?;
    Some((Block::of(addr), Block::of(last)))
}

impl Node {
    /// Whether every block of the range allows the access now.
    pub fn is_accessible(&self, addr: u64, bytes: u64, store: bool) -> bool {
        let Some((mut block, last)) = blocks_of(addr, bytes) else { return true };
        loop {
            if !self.space.allows(block, store) {
                return false;
            }
            match block.next() {
                Some(next) if block < last => block = next,
                _ => return true,
            }
        }
    }

    /// Makes every block of the range accessible at once. `masked`: leave memory alone that was never allocated.
    /// Called right after [`Node::begin`].
    pub fn access(&mut self, addr: u64, bytes: u64, store: bool, masked: bool) {
        let Some((mut block, last)) = blocks_of(addr, bytes) else { return };
        self.coherence.pins.first = block.addr();
        loop {
            self.acquire(block, store, masked);
            self.coherence.pins.end = block.addr() + 1;
            self.release_grant();
            match block.next() {
                Some(next) if block < last => block = next,
                _ => return,
            }
        }
    }

    /// Makes all blocks of all lanes accessible at once. Called right after [`Node::begin`].
    pub fn access_lanes(&mut self, lanes: &[(u64, u64)], store: bool) {
        let mut list = [0u64; LANE_BLOCKS];
        let mut len = 0;
        for &(addr, bytes) in lanes {
            let Some((mut block, last)) = blocks_of(addr, bytes) else { continue };
            loop {
                if !list[..len].contains(&block.addr()) {
                    if len == LANE_BLOCKS {
                        self.fail(format_args!("a gather or scatter has more than {LANE_BLOCKS} blocks"));
                    }
                    list[len] = block.addr();
                    len += 1;
                }
                match block.next() {
                    Some(next) if block < last => block = next,
                    _ => break,
                }
            }
        }
        list[..len].sort_unstable();
        for &addr in &list[..len] {
            self.acquire(Block::of(addr), store, false);
            let pins = &mut self.coherence.pins;
            pins.list[pins.listed] = addr;
            pins.listed += 1;
            self.release_grant();
        }
    }

    /// Forgets the access before: its instruction has been executed. Then handles what it held up.
    pub fn end_last_access(&mut self) {
        let pins = &mut self.coherence.pins;
        (pins.first, pins.end, pins.listed) = (0, 0, 0);
        for _ in 0..self.coherence.held.len() {
            let Some(message) = self.coherence.held.pop() else { break };
            self.protocol_event(&message);
        }
        self.replay();
    }

    /// Whether something waits for the access in progress to be executed.
    pub fn holds_work(&self) -> bool {
        !self.coherence.held.is_empty()
            || self.coherence.deferred.blocks().any(|addr| self.coherence.is_pinned(Block::of(addr)))
    }

    fn release_grant(&mut self) {
        self.coherence.acquiring = None;
        self.coherence.granted = false;
    }

    /// Makes one block accessible; on return the caller pins it.
    fn acquire(&mut self, block: Block, store: bool, masked: bool) {
        if self.space.allows(block, store) {
            return;
        }
        let Some(arena) = self.homes.arena_of(block.addr()) else {
            return self.refuse_unallocated(block, masked);
        };
        if block.addr() >= self.coherence.limits[arena.index()] && !self.ask_limit(arena, block) {
            return self.refuse_unallocated(block, masked);
        }
        let tag = self.tag_of(block);
        self.count(match (store, tag) {
            (true, Tag::ReadOnly) => Counter::Upgrades,
            (true, _) => Counter::WriteMisses,
            (false, _) => Counter::ReadMisses,
        });
        self.coherence.acquiring = Some(block);
        self.coherence.granted = false;
        let home = self.home_of(block);
        if home == self.me {
            self.home_event(block, if store { HomeEvent::LocalStore } else { HomeEvent::LocalLoad }, None);
        } else {
            self.cache_event(block, if store { CacheEvent::Store } else { CacheEvent::Load }, None);
        }
        self.wait(Wait::Miss, |node| node.coherence.granted);
        if !self.space.allows(block, store) {
            self.fail(format_args!("protocol error: block {:#x} was granted without its tag", block.addr()));
        }
    }

    /// Whether the address has been handed out; asks the arena's owner.
    #[cold]
    fn ask_limit(&mut self, arena: ArenaId, block: Block) -> bool {
        let Some(owner) = self.homes.owner_of(arena) else { return false };
        let key = self.fresh_key();
        let query = Message { handler: id::LIMIT_QUERY, args: [arena.index() as u64, 0, 0], key, ..Message::default() };
        let reply = self.call(owner, query, id::LIMIT, Wait::Miss);
        self.coherence.learn_limit(arena, reply.args[0]);
        block.addr() < self.coherence.limits[arena.index()]
    }

    #[cold]
    fn refuse_unallocated(&mut self, block: Block, masked: bool) {
        if !masked {
            self.fail(format_args!(
                "access to {:#x}..{:#x}: shared memory that was never allocated",
                block.addr(),
                block.addr().saturating_add(crate::abi::BLOCK_BYTES)
            ));
        }
    }

    fn tag_of(&mut self, block: Block) -> Tag {
        match self.space.tag(block) {
            Some(tag) => tag,
            None => self.fail(format_args!("the tag of block {:#x} was overwritten", block.addr())),
        }
    }

    fn home_of(&mut self, block: Block) -> NodeId {
        match self.homes.home_of(block.addr()) {
            Some(home) => home,
            None => self.fail(format_args!("block {:#x} has no home", block.addr())),
        }
    }

    /// A validated protocol message, or one that was put aside.
    fn protocol_event(&mut self, message: &Message) {
        let block = Block::of(message.addr);
        let (Some(msg), Some(from)) = (Msg::from_byte(message.handler as u8), NodeId::new(message.source.into()))
        else {
            return self.count(Counter::MessagesRejected);
        };
        if msg == Msg::Invalidate {
            self.count(Counter::InvalidationsReceived);
        }
        if let Some(event) = HomeEvent::from_msg(msg, from) {
            self.home_event(block, event, Some(&message.data));
        } else if let Some(event) = CacheEvent::from_msg(msg) {
            self.cache_event(block, event, Some(&message.data));
        }
    }

    /// Steps an event at the home, or queues it behind those that wait already.
    fn home_event(&mut self, block: Block, event: HomeEvent, data: Option<&[u64; BLOCK_WORDS]>) {
        if event.is_request() && self.coherence.deferred.is_waiting(block.addr()) {
            self.defer(block, event);
        } else if self.home_step(block, event, data) {
            self.replay();
        }
    }

    fn defer(&mut self, block: Block, event: HomeEvent) {
        if self.coherence.deferred.push(block.addr(), event).is_err() {
            self.fail(format_args!("protocol error: more requests wait at this home than there are nodes"));
        }
    }

    /// Steps an event; true when the block's deferred events must be stepped next.
    fn home_step(&mut self, block: Block, event: HomeEvent, data: Option<&[u64; BLOCK_WORDS]>) -> bool {
        let number = self.space.number(block);
        let entry = self.coherence.directory.get(number);
        if entry == DirEntry::IDLE && self.space.tag(block) == Some(Tag::Invalid) {
            self.first_touch(block);
        }
        let tag = self.tag_of(block);
        match stache::home_step(entry, tag, event) {
            Ok((next, _, actions)) if actions.is_defer() => {
                self.coherence.directory.set(number, next);
                self.defer(block, event);
                false
            }
            Ok((next, _, actions)) => {
                self.coherence.directory.set(number, next);
                self.perform(block, self.me, &actions, data)
            }
            Err(violation) => self.violation(block, &violation),
        }
    }

    /// Raises the tags of a home page's blocks that nobody has used.
    #[cold]
    fn first_touch(&mut self, block: Block) {
        let mut each = Block::of(block.addr() & !(PAGE_BYTES - 1));
        for _ in 0..PAGE_BYTES / crate::abi::BLOCK_BYTES {
            let idle = self.coherence.directory.get(self.space.number(each)) == DirEntry::IDLE;
            if idle && self.space.tag(each) == Some(Tag::Invalid) {
                self.space.set_tag(each, Tag::Writable);
            }
            match each.next() {
                Some(next) => each = next,
                None => return,
            }
        }
    }

    /// Steps an event at a node that is not the home.
    fn cache_event(&mut self, block: Block, event: CacheEvent, data: Option<&[u64; BLOCK_WORDS]>) {
        let state = match self.coherence.miss {
            Some((missing, state)) if missing == block => Some(state),
            _ => CacheState::from_tag(self.tag_of(block)),
        };
        let Some(state) = state else {
            self.fail(format_args!("protocol error: block {:#x} is Busy without a miss", block.addr()))
        };
        match stache::cache_step(state, event) {
            Ok((next, actions)) => {
                if next.is_pending() {
                    self.coherence.miss = Some((block, next));
                } else if state.is_pending() {
                    self.coherence.miss = None;
                }
                let home = self.home_of(block);
                self.perform(block, home, &actions, data);
            }
            Err(violation) => self.violation(block, &violation),
        }
    }

    #[cold]
    fn violation(&self, block: Block, violation: &crate::protocol::Violation) -> ! {
        self.fail(format_args!("protocol error at block {:#x}: {}: {violation:?}", block.addr(), violation.what()))
    }

    /// Performs a step's actions in order; true when deferred events must be stepped next.
    fn perform(&mut self, block: Block, home: NodeId, actions: &Actions, data: Option<&[u64; BLOCK_WORDS]>) -> bool {
        let mut replay = false;
        for &action in actions.as_slice() {
            match action {
                Action::CopyIn => match data {
                    Some(data) => self.space.write(block, data),
                    None => self.fail(format_args!("protocol error: no data for block {:#x}", block.addr())),
                },
                Action::SetTag(tag) => self.space.set_tag(block, tag),
                Action::Send(to, msg) => self.send_protocol(to, block, msg),
                Action::SendHome(msg) => self.send_protocol(home, block, msg),
                Action::Invalidate(nodes) => {
                    for to in nodes.iter() {
                        self.send_protocol(to, block, Msg::Invalidate);
                    }
                }
                Action::Resume => self.coherence.granted = self.coherence.acquiring == Some(block),
                Action::Replay => replay = true,
                Action::Defer => {}
            }
        }
        replay
    }

    fn send_protocol(&mut self, to: NodeId, block: Block, msg: Msg) {
        let mut message = Message { handler: msg.byte().into(), addr: block.addr(), ..Message::default() };
        if msg.carries_data() {
            message.length = crate::abi::BLOCK_BYTES as u8;
            message.data = self.space.read(block);
        }
        if msg == Msg::WriteBack {
            self.count(Counter::WriteBacks);
        }
        self.send(to, message);
    }

    /// Steps deferred events of all blocks that are neither busy nor pinned, oldest first.
    fn replay(&mut self) {
        while let Some(block) = self.next_replayable() {
            match self.coherence.deferred.pop(block.addr()) {
                Some(event) => self.home_step(block, event, None),
                None => return,
            };
        }
    }

    fn next_replayable(&self) -> Option<Block> {
        self.coherence.deferred.blocks().map(Block::of).find(|&block| {
            let entry = self.coherence.directory.get(self.space.number(block));
            !self.coherence.is_pinned(block) && entry.decode().is_some_and(|state| !state.is_busy())
        })
    }
}

/// Handler of all protocol messages.
pub fn on_message(node: &mut Node, _from: NodeId, message: &Message) {
    let block = Block::of(message.addr);
    if node.coherence.is_pinned(block) || (!node.coherence.held.is_empty() && node.coherence.is_held(block)) {
        if node.coherence.held.push(*message).is_err() {
            node.fail(format_args!("no memory to put a message aside"));
        }
        return;
    }
    node.protocol_event(message);
}
