//! Misses: makes blocks accessible by running the protocol of the run on this node.
//!
//! Purpose: [`Node::access`] returns when every block of an access may be used; [`on_message`] is the handler of all protocol
//! messages. Everything that decides is in [`crate::protocol`]. This module keeps the rules that every protocol asks of its caller;
//! a *driver* per protocol ([`stache`], [`mcm`]) holds the protocol's state and performs its actions. Input: accesses and messages.
//! Output: tags, data and messages.
//!
//! # The boundary between this module and a driver
//!
//! Which protocol a run uses stands in the region's header; [`Kind`] is its number. This module asks a driver for these things only:
//!
//! | function | when | what the driver does |
//! |---|---|---|
//! | `start_miss` | a tag does not allow the access in progress | steps the miss; sooner or later calls [`Node::grant`] |
//! | `block_message` | a validated message about a block that is not pinned | steps it |
//! | `resume_work` | the access before is over, nothing is pinned | steps what it put off because of a pin |
//! | `owes_answer` | before a system call that may wait | says whether a home waits for this node, which waits for an answer itself |
//! | `has_put_off_work` | before the program goes on | says whether there is something to do or to look for at the next poll |
//! | `evict` | room for another page is needed, or the program gives a copy back | steps the eviction of a block that is not in use |
//! | `protocol_idle` | a wait in which nothing arrives | sends again what was refused, if it has such a thing |
//!
//! Prefetches are outstanding misses that nobody waits for. It
//! offers a driver, besides tags and data ([`Node::space`]): `grant`, `is_pinned`, `send_block`, `tag_of`, `home_of`.
//!
//! A *block* here is what changes hands together, as its allocation or `--block-size` says: a power of two of minimum blocks, which have a tag each. Data of a larger block
//! travels as messages of 64 bytes, all but the last of them without a meaning of their own; channels keep the order, so the last one finds
//! the others arrived.
//!
//! **Rules and how they are kept.**
//! * *The access comes before the next event of its blocks.* A block that was found or made accessible for the access in progress is
//!   *pinned* until the next entry into the runtime. Messages for a pinned block, and all later ones for a block that has a
//!   message put aside, go to the `held` queue, which the next entry handles first.
//! * *No circular waits.* Blocks of one access are acquired in ascending order, so whoever holds messages back waits only for
//!   higher blocks than those.
//! * *Requests ahead* ([`trail`]) are made after the one that the access waits for, never for a block that is pinned or has a message
//!   put aside, and hold nothing back: a block that they bring may be taken away before it is used.
//! * *Memory that nobody allocated.* A node knows for each arena up to where memory has been handed out, and asks the arena's
//!   owner when an address is beyond what it knows.

/// Whether that bug is planted: see `planted.rs`. Never in a runtime that Blizzard embeds.
macro_rules! has_bug {
    ($node:expr, $bug:ident) => {{
        #[cfg(any(feature = "planted", test))]
        let has = $node.bug() == Some($crate::coherence::planted::Bug::$bug);
        #[cfg(not(any(feature = "planted", test)))]
        let has = {
            let _ = &$node;
            false
        };
        has
    }};
}
pub(crate) use has_bug;

pub mod mcm;
#[cfg(any(feature = "planted", test))]
pub mod planted;
pub mod replace;
#[cfg(test)]
pub mod shuffle;
pub mod stache;
pub mod trail;

use crate::buffer::{Queue, Table, Zeroed};
use crate::homes::{ArenaId, MAX_ARENAS, PAGE_BYTES};
use crate::instruments::{self, Step};
use crate::msg::{self, id};
use crate::node::Node;
use crate::protocol::{NodeId, Tag};
use crate::segment;
use crate::stats::Wait;
use crate::sys;
use crate::tags::{BLOCK_WORDS, Block, Space};
use crate::transport::{Idled, Message};
use blizzard_contract::{self as contract, BLOCK_BYTES, Counter};
use mcm::Mcm;
use replace::Pages;
use stache::Stache;
use trail::Trail;

/// Most blocks of a gather or scatter, or of a group of checks: 16 lanes, each of which may straddle two blocks.
pub const LANE_BLOCKS: usize = 32;

/// Most minimum blocks of a block.
const MOST_PARTS: u64 = PAGE_BYTES / BLOCK_BYTES;

/// One of them.
#[derive(Clone, Copy)]
struct Part([u64; BLOCK_WORDS]);

// SAFETY: integers.
unsafe impl Zeroed for Part {}

/// The protocols that a run can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Stache,
    Mcm,
}

impl Kind {
    /// The protocol with that number ([`contract::protocol_number`]) in the region's header; `None` when there is none.
    pub const fn from_number(number: u32) -> Option<Kind> {
        match number {
            contract::protocol_number::STACHE => Some(Kind::Stache),
            contract::protocol_number::MCM => Some(Kind::Mcm),
            _ => None,
        }
    }
}

/// A range of bytes that an access needs, together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub addr: u64,
    pub bytes: u64,
    pub store: bool,
    /// Memory that was never allocated does not matter.
    pub masked: bool,
}

/// A block of such ranges, and what is needed of it.
#[derive(Clone, Copy, Default)]
struct Wanted {
    addr: u64,
    store: bool,
    masked: bool,
}

/// The blocks that the access in progress has already got.
struct Pins {
    /// Contiguous accesses: all blocks with `first <= block < end`.
    first: u64,
    end: u64,
    /// Gathers, scatters, groups of checks.
    list: [u64; LANE_BLOCKS],
    listed: usize,
}

impl Pins {
    #[inline]
    fn contains(&self, block: Block) -> bool {
        let addr = block.addr();
        (self.first <= addr && addr < self.end) || self.list[..self.listed].contains(&addr)
    }
}

/// The coherence state of one node.
pub struct Coherence {
    kind: Kind,
    /// The states of both protocols; that of the other kind stays as it is at the start, and costs next to nothing.
    stache: Stache,
    mcm: Mcm,
    /// The block being acquired, and whether it has been granted: from then on it is pinned.
    acquiring: Option<Block>,
    granted: bool,
    pins: Pins,
    /// Messages put aside, in order of arrival.
    held: Queue<Message>,
    /// By source: data of larger blocks, up to the message that they belong to.
    arriving: [Arriving; contract::MAX_NODES],
    parts: Table<Part>,
    /// Who sent the message being handled.
    data_from: u8,
    pages: Pages,
    /// The misses that waited, and what is likely to follow them.
    pub trail: Trail,
    /// By arena: the first address that was never handed out, as far as this node knows.
    limits: [u64; MAX_ARENAS],
    /// In a test that lets messages overtake each other.
    #[cfg(test)]
    pub bag: Option<shuffle::Bag>,
}

impl Coherence {
    /// The state of a node that has used nothing yet.
    pub fn new(kind: Kind, header: &contract::RegionHeader) -> sys::Result<Coherence> {
        let segment_bytes = header.segment_bytes;
        let segment_blocks = segment_bytes >> contract::BLOCK_SHIFT;
        let blocks_of = |each| if each == kind { segment_blocks } else { 0 };
        Ok(Coherence {
            kind,
            stache: Stache::new(blocks_of(Kind::Stache))?,
            mcm: Mcm::new(blocks_of(Kind::Mcm))?,
            acquiring: None,
            granted: false,
            pins: Pins { first: 0, end: 0, list: [0; LANE_BLOCKS], listed: 0 },
            held: Queue::new(),
            arriving: [Arriving { block: 0, parts: 0 }; contract::MAX_NODES],
            parts: Table::new(contract::MAX_NODES as u64 * MOST_PARTS)?,
            data_from: 0,
            pages: Pages::new(header.stache_pages, segment_bytes)?,
            trail: Trail::new(header.look_ahead, header.ring_slots)?,
            limits: [0; MAX_ARENAS],
            #[cfg(test)]
            bag: None,
        })
    }

    /// The protocol of the run.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether no event of any block waits for anything.
    #[inline]
    fn is_at_rest(&self) -> bool {
        #[cfg(test)]
        if self.bag.is_some() {
            return false;
        }
        self.held.is_empty()
            && match self.kind {
                Kind::Stache => self.stache.is_at_rest(),
                Kind::Mcm => self.mcm.is_at_rest(),
            }
    }

    #[inline]
    fn is_pinned(&self, block: Block) -> bool {
        self.pins.contains(block) || (self.granted && self.acquiring == Some(block))
    }

    /// Whether a message about the block, or a part of its data, was put aside.
    fn is_held(&self, space: &Space, block: Block) -> bool {
        (0..self.held.len()).any(|at| self.held.get(at).is_some_and(|m| space.block_of(m.addr) == block))
    }
}

/// What has come of a block's data that travels in parts.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Arriving {
    block: u64,
    parts: u64,
}

/// A range of bytes as its first and its last minimum block; `None` when it is empty or wraps around.
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
        let Some((first, last)) = blocks_of(addr, bytes) else { return };
        let mut bytes = self.block_bytes(first.addr());
        let mut block = Block::of(first.addr() & !(bytes - 1));
        self.coherence.pins.first = block.addr();
        loop {
            self.acquire(block, store, masked);
            self.coherence.pins.end = block.addr() + 1;
            self.release_grant();
            match block.addr().checked_add(bytes).map(Block::of) {
                Some(next) if next <= last => block = next,
                _ => return,
            }
            bytes = self.block_bytes(block.addr());
        }
    }

    /// Makes all blocks of all lanes accessible at once. Called right after [`Node::begin`].
    pub fn access_lanes(&mut self, lanes: &[Lane]) {
        let mut list = [Wanted::default(); LANE_BLOCKS];
        let mut len = 0;
        for &Lane { addr, bytes, store, masked } in lanes {
            let Some((first, last)) = blocks_of(addr, bytes) else { continue };
            let mut block = self.space.block_of(first.addr());
            loop {
                match list[..len].iter_mut().find(|w| w.addr == block.addr()) {
                    Some(w) => {
                        w.store |= store;
                        w.masked &= masked;
                    }
                    None if len == LANE_BLOCKS => {
                        self.fail(format_args!("an access has more than {LANE_BLOCKS} blocks"));
                    }
                    None => {
                        list[len] = Wanted { addr: block.addr(), store, masked };
                        len += 1;
                    }
                }
                match self.space.after(block) {
                    Some(next) if next <= last => block = next,
                    _ => break,
                }
            }
        }
        list[..len].sort_unstable_by_key(|w| w.addr);
        for &Wanted { addr, store, masked } in &list[..len] {
            self.acquire(Block::of(addr), store, masked);
            let pins = &mut self.coherence.pins;
            pins.list[pins.listed] = addr;
            pins.listed += 1;
            self.release_grant();
        }
    }

    /// Forgets the access before: its instruction has been executed. Then handles what it held up.
    #[inline]
    pub fn end_last_access(&mut self) {
        let pins = &mut self.coherence.pins;
        (pins.first, pins.end, pins.listed) = (0, 0, 0);
        if !self.coherence.is_at_rest() {
            self.catch_up();
        }
    }

    #[inline(never)]
    fn catch_up(&mut self) {
        for _ in 0..self.coherence.held.len() {
            let Some(message) = self.coherence.held.pop() else { break };
            let bytes = self.block_bytes(message.addr);
            self.event(&message, bytes);
        }
        self.resume_work();
    }

    /// Whether something waits for the access in progress to be executed.
    #[inline]
    pub fn holds_work(&self) -> bool {
        !self.coherence.is_at_rest() && self.has_held_work()
    }

    #[inline(never)]
    fn has_held_work(&self) -> bool {
        #[cfg(test)]
        if self.coherence.bag.as_ref().is_some_and(|bag| !bag.is_empty()) {
            return true;
        }
        !self.coherence.held.is_empty() || self.has_put_off_work()
    }

    fn start_miss(&mut self, block: Block, store: bool) {
        match self.coherence.kind {
            Kind::Stache => self.stache_miss(block, store),
            Kind::Mcm => self.mcm_miss(block, store),
        }
    }

    /// A message about a block that is not pinned, of so many bytes: a part of its data, or something for the driver.
    #[inline]
    fn event(&mut self, message: &Message, bytes: u64) {
        if message.handler == id::BLOCK_PART {
            return self.part_arrived(message);
        }
        // Only data follows its parts. Another message may have been put aside and come between the parts of what is arriving.
        if message.length != 0 {
            let place = self.parts_from(message.source);
            let arriving = core::mem::take(&mut self.coherence.arriving[place]);
            let parts = bytes / BLOCK_BYTES;
            if parts > 1 && arriving != (Arriving { block: message.addr, parts: parts - 1 }) {
                return self.count(Counter::MessagesRejected);
            }
            self.coherence.data_from = place as u8;
        }
        self.block_message(message, Block::of(message.addr & !(bytes - 1)));
    }

    /// A part of a block's data that is not the last.
    #[inline(never)]
    fn part_arrived(&mut self, message: &Message) {
        let source = self.parts_from(message.source);
        let block = self.space.block_of(message.addr).addr();
        let part = (message.addr - block) / BLOCK_BYTES;
        let parts = self.space.parts(Block::of(block));
        let arriving = &mut self.coherence.arriving[source];
        if part == 0 {
            *arriving = Arriving { block, parts: 0 };
        }
        if arriving.block != block || arriving.parts != part || part + 1 == parts {
            *arriving = Arriving::default();
            return self.count(Counter::MessagesRejected);
        }
        arriving.parts += 1;
        self.coherence.parts.set(source as u64 * MOST_PARTS + part, Part(message.data));
    }

    /// Where the parts are kept that come from that node.
    #[inline(always)]
    fn parts_from(&self, source: u8) -> usize {
        if has_bug!(self, PartsInOnePlace) { 0 } else { usize::from(source) }
    }

    /// Bytes of the block that holds `addr`.
    #[inline(always)]
    fn block_bytes(&self, addr: u64) -> u64 {
        match self.home_table.place(&self.homes, addr) {
            Some(place) => place.block.bytes(),
            None => self.space.block_bytes(addr),
        }
    }

    /// Minimum blocks of a block.
    #[inline(always)]
    fn parts(&self, block: Block) -> u64 {
        self.block_bytes(block.addr()) / BLOCK_BYTES
    }

    /// Sets the tags of a block.
    #[inline(always)]
    fn set_tag(&self, block: Block, tag: Tag) {
        let bytes = if has_bug!(self, TagOfFirstPart) { BLOCK_BYTES } else { self.block_bytes(block.addr()) };
        self.space.set_tags(block, bytes, tag);
    }

    /// Writes the data of the message being handled into the own copy: what came before it, and its own, which is the last part.
    #[inline]
    fn copy_in(&mut self, block: Block, data: &[u64; BLOCK_WORDS]) {
        let last = self.parts(block) - 1;
        if last == 0 {
            return self.space.write(block, data);
        }
        let first = u64::from(self.coherence.data_from) * MOST_PARTS;
        for part in if has_bug!(self, LastPartOnly) { last..last } else { 0..last } {
            let Part(data) = self.coherence.parts.get(first + part);
            self.space.write(Block::of(block.addr() + part * BLOCK_BYTES), &data);
        }
        self.space.write(Block::of(block.addr() + last * BLOCK_BYTES), data);
    }

    #[inline]
    fn block_message(&mut self, message: &Message, block: Block) {
        match self.coherence.kind {
            Kind::Stache => self.stache_message(message, block),
            Kind::Mcm => self.mcm_message(message, block),
        }
    }

    fn resume_work(&mut self) {
        #[cfg(test)]
        self.deliver_from_bag();
        match self.coherence.kind {
            Kind::Stache => self.stache_replay(),
            Kind::Mcm => self.mcm_serve_jobs(),
        }
    }

    fn has_put_off_work(&self) -> bool {
        match self.coherence.kind {
            Kind::Stache => self.stache_has_deferred(),
            Kind::Mcm => self.mcm_has_jobs() || self.mcm_owes_answer(),
        }
    }

    /// Whether another node may be held up until this one has taken an answer out of its rings, for which nobody rings its doorbell.
    pub fn owes_answer(&self) -> bool {
        match self.coherence.kind {
            // What a Stache node answers does not depend on what it has asked for.
            Kind::Stache => false,
            Kind::Mcm => self.mcm_owes_answer(),
        }
    }

    /// Called in a wait when nothing has arrived during that step.
    #[inline]
    pub fn protocol_idle(&mut self, idled: Idled) {
        #[cfg(test)]
        self.deliver_from_bag();
        match self.coherence.kind {
            Kind::Stache => {}
            Kind::Mcm => self.mcm_idle(idled),
        }
        #[cfg(test)]
        if self.coherence.bag.as_ref().is_some_and(|bag| !bag.is_empty()) {
            self.transport.limit_sleep(shuffle::NAP_NS);
        }
    }

    /// After how many looks in vain the protocol wants [`Node::protocol_idle`] to be called.
    #[inline]
    pub fn protocol_patience(&self) -> u32 {
        match self.coherence.kind {
            Kind::Stache => u32::MAX,
            Kind::Mcm => self.mcm_patience(),
        }
    }

    /// The block allows the access in progress, if that is what this node waits for: from now on it is pinned.
    fn grant(&mut self, block: Block) {
        if self.coherence.acquiring == Some(block) || has_bug!(self, AheadIsGranted) {
            self.coherence.granted = true;
        }
    }

    /// Sends a message about a block; `with_data`: with the bytes of the own copy as they are now.
    #[inline]
    fn send_block(&mut self, to: NodeId, block: Block, handler: u16, with_data: bool) {
        if with_data && self.parts(block) != 1 || to == self.me {
            return self.send_block_in_parts(to, block, handler, with_data);
        }
        instruments::boundary(&self.context);
        let mut words = [0; 4];
        let data = if with_data {
            let data = self.space.read(block);
            instruments::stamp_answer(&self.context, &mut words);
            Some(data)
        } else {
            instruments::stamp(&self.context, Step::LookedUp);
            None
        };
        let kind = msg::urgency(self.coherence.kind, handler);
        if !self.transport.send_block(to, (handler, block.addr(), words), data.as_ref(), kind) {
            self.send_block_in_parts(to, block, handler, with_data);
        }
        instruments::stamp(&self.context, Step::Sent);
    }

    /// [`Node::send_block`] of any block, to any node, and of what waits in this node's memory.
    #[inline(never)]
    fn send_block_in_parts(&mut self, to: NodeId, block: Block, handler: u16, with_data: bool) {
        let mut message = Message { handler, addr: block.addr(), ..Message::default() };
        if with_data {
            message.length = BLOCK_BYTES as u8;
            let last = self.parts(block) - 1;
            for part in 0..last {
                let addr = block.addr() + part * BLOCK_BYTES;
                let data = self.space.read(Block::of(addr));
                self.send(to, Message { handler: id::BLOCK_PART, addr, data, ..message });
            }
            message.data = self.space.read(Block::of(block.addr() + last * BLOCK_BYTES));
        }
        self.send(to, message);
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
        if !self.is_handed_out(block, store) {
            return self.refuse_unallocated(block, masked);
        }
        let tag = self.tag_of(block);
        self.count(match (store, tag) {
            (true, Tag::ReadOnly) => Counter::Upgrades,
            (true, _) => Counter::WriteMisses,
            (false, _) => Counter::ReadMisses,
        });
        self.learn_home(block);
        self.note_page(block);
        let prefetched = self.coherence.kind == Kind::Stache && self.stache_is_outstanding(block);
        if prefetched {
            // The guess was right.
            self.ask_ahead();
            self.wait_for_grant(block);
            if self.space.allows(block, store) || has_bug!(self, JoinsAnyRequest) {
                return self.take_what_has_come();
            }
            // It was asked for to load from, and the access stores. Nothing was put aside for it meanwhile: the wait ended with the grant. (An
            // invalidation that were would keep the home from answering.) At its home, requests of others may have waited for the block; the store
            // that comes now waits behind them, so they go on first.
            self.release_grant();
            self.resume_work();
        }
        self.coherence.acquiring = Some(block);
        self.coherence.granted = false;
        self.start_miss(block, store);
        if !self.coherence.granted {
            self.follow_trail(block, store);
            self.wait(Wait::Miss, |node| node.coherence.granted);
            self.take_what_has_come();
        }
        if !self.space.allows(block, store) {
            self.fail(format_args!("protocol error: block {:#x} was granted without its tag", block.addr()));
        }
    }

    /// Finds out who the home of a block is; the first node to use a page becomes it.
    fn learn_home(&mut self, block: Block) {
        let place = self.home_table.place(&self.homes, block.addr());
        if place.is_none() && self.home_table.is_unknown(&self.homes, block.addr()) {
            self.ask_home(block);
        }
    }

    #[cold]
    fn ask_home(&mut self, block: Block) {
        let Some(keeper) = self.homes.home_of(block.addr()) else { return };
        if keeper == self.me {
            self.home_table.learn(block.addr(), self.me);
            return self.count(Counter::PagesHomed);
        }
        self.count(Counter::HomeQueries);
        self.home_table.set_asking(Some(block.addr()));
        let key = self.fresh_key();
        let query = Message { handler: id::HOME_QUERY, addr: block.addr(), key, ..Message::default() };
        let number = self.call(keeper, query, id::HOME_IS, Wait::Miss).args[0];
        self.home_table.set_asking(None);
        let home = u32::try_from(number).ok().and_then(NodeId::new).filter(|home| home.index() < self.node_count());
        match home {
            Some(_) if has_bug!(self, AskerIsHome) => self.home_table.learn(block.addr(), self.me),
            Some(home) => self.home_table.learn(block.addr(), home),
            None => self.fail(format_args!("protocol error: the home of {:#x} is node {number}", block.addr())),
        }
        if home == Some(self.me) {
            self.count(Counter::PagesHomed);
        }
    }

    /// Where blocks are asked for ahead, their data are likely to come together with what was waited for: takes them, so that the program finds
    /// them accessible. The block that was granted is pinned: messages about it are put aside.
    fn take_what_has_come(&mut self) {
        if self.has_outstanding() {
            self.serve();
        }
    }

    /// Whether any request of this node is not answered, or an answer has left something to do.
    pub fn has_outstanding(&self) -> bool {
        match self.coherence.kind {
            Kind::Stache => self.stache_has_outstanding(),
            Kind::Mcm => self.mcm_has_outstanding(),
        }
    }

    fn node_count(&self) -> usize {
        self.homes.nodes() as usize
    }

    /// Waits for a block that was asked for before.
    fn wait_for_grant(&mut self, block: Block) {
        self.coherence.acquiring = Some(block);
        self.coherence.granted = false;
        self.wait(Wait::Miss, |node| node.coherence.granted);
    }

    /// Whether the block's memory has been handed out; asks its owner if this node does not know. Loads may go on to the end of a page that has been
    /// handed out in part, where all is zero: the C library reads strings in vectors, and so past their ends, though never into another page.
    fn is_handed_out(&mut self, block: Block, store: bool) -> bool {
        let place = self.home_table.place(&self.homes, block.addr());
        let arena = place.map(|place| place.arena).or_else(|| self.homes.arena_of(block.addr()));
        let Some(arena) = arena else { return false };
        self.is_below_limit(arena, block, store) || self.ask_limit(arena) && self.is_below_limit(arena, block, store)
    }

    fn is_below_limit(&self, arena: ArenaId, block: Block, store: bool) -> bool {
        let limit = self.coherence.limits[arena.index()];
        block.addr() < if store { limit } else { limit.next_multiple_of(PAGE_BYTES) }
    }

    /// Asks the arena's owner how much has been handed out; false if it has none.
    #[cold]
    fn ask_limit(&mut self, arena: ArenaId) -> bool {
        let Some(owner) = self.homes.owner_of(arena) else { return false };
        let key = self.fresh_key();
        let query = Message { handler: id::LIMIT_QUERY, args: [arena.index() as u64, 0, 0], key, ..Message::default() };
        let reply = self.call(owner, query, id::LIMIT, Wait::Miss);
        self.learn_limit(arena, reply.args[0]);
        true
    }

    /// Notes that memory below `limit` has been handed out in that arena.
    pub fn learn_limit(&mut self, arena: ArenaId, limit: u64) {
        let known = &mut self.coherence.limits[arena.index()];
        let before = core::mem::replace(known, limit.max(*known));
        if let Some((start, bytes)) = self.homes.arena_range(arena).filter(|_| limit > before) {
            let local = self.space.local(start) as u64;
            // SAFETY: an arena of this node's copy of the segment.
            unsafe { segment::show_in_dumps(local, (start, start + bytes), before, limit) };
        }
    }

    #[cold]
    fn refuse_unallocated(&mut self, block: Block, masked: bool) {
        if !masked {
            self.fail(format_args!(
                "access to {:#x}..{:#x}: shared memory that was never allocated",
                block.addr(),
                block.addr().saturating_add(self.space.block_bytes(block.addr()))
            ));
        }
    }

    #[inline]
    fn tag_of(&mut self, block: Block) -> Tag {
        match self.space.tag(block) {
            Some(tag) => tag,
            None => self.refuse_tag(block),
        }
    }

    #[cold]
    fn refuse_tag(&self, block: Block) -> ! {
        self.fail(format_args!("the tag of block {:#x} was overwritten", block.addr()))
    }

    #[inline]
    fn home_of(&self, block: Block) -> NodeId {
        match self.home_table.place(&self.homes, block.addr()) {
            Some(place) => place.home,
            None => self.refuse_homeless(block),
        }
    }

    #[cold]
    fn refuse_homeless(&self, block: Block) -> ! {
        self.fail(format_args!("block {:#x} has no home", block.addr()))
    }
}

/// A node asks for the home of a first-touch page whose entry is here. Answer: `args[0]`: its number.
pub fn on_home_query(node: &mut Node, from: NodeId, message: &Message) {
    let addr = message.addr;
    let here = node.space.contains(addr) && node.homes.home_of(addr) == Some(node.me);
    if !here || !node.home_table.is_first_touch(&node.homes, addr) {
        return node.count(Counter::MessagesRejected);
    }
    let home = match node.home_table.home_of(&node.homes, addr) {
        Some(home) => home,
        None => {
            if !has_bug!(node, TwoHomes) {
                node.home_table.learn(addr, from);
            }
            from
        }
    };
    node.send(from, Message { handler: id::HOME_IS, args: [home.index() as u64, 0, 0], ..*message });
}

/// Handler of all protocol messages, and of the parts of data that come before them.
pub fn on_message(node: &mut Node, _from: NodeId, message: &Message) {
    #[cfg(test)]
    if node.coherence.bag.is_some() {
        return node.put_into_bag(message);
    }
    deliver(node, message);
}

/// Handles a message, or puts it aside.
fn deliver(node: &mut Node, message: &Message) {
    let place = node.home_table.place(&node.homes, message.addr);
    let bytes = place.map_or_else(|| node.space.block_bytes(message.addr), |place| place.block.bytes());
    let block = Block::of(message.addr & !(bytes - 1));
    // This node is the home of its page, and will be told so.
    let too_early = place.is_none() && node.home_table.is_unknown(&node.homes, block.addr());
    if too_early && has_bug!(node, EarlyMessageIsDropped) {
        return;
    }
    if too_early
        || node.coherence.is_pinned(block)
        || (!node.coherence.held.is_empty() && node.coherence.is_held(&node.space, block))
    {
        if node.coherence.held.push(*message).is_err() {
            node.fail(format_args!("no memory to put a message aside"));
        }
        return;
    }
    node.event(message, bytes);
}
