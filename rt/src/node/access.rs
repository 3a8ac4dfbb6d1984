//! Accesses: makes all blocks of an access accessible at once.
//!
//! Purpose: [`Node::access`] and [`Node::access_lanes`] return when every block of an access may be used. What decides is in the coherence engine
//! ([`blizzard_protocol::engine`]); here is what waits: for a block, for the answer to who its home is, and to whether its memory has been handed out.
//! Input: accesses. Output: pinned blocks. Also here: the handlers of what the engine and the homes of pages are sent.
//!
//! **Invariants**
//! * Blocks of one access are acquired in ascending order.
//! * *Memory that nobody allocated.* A node knows for each arena up to where memory has been handed out, and asks the arena's
//!   owner when an address is beyond what it knows.

use crate::links::bugs::has_bug;
use crate::links::pushes::{self, PIECE_BLOCKS};
use crate::memory::homes::{ArenaId, PAGE_BYTES};
use crate::messages::kinds::id;
use crate::node::alarm;
use crate::node::node::Node;
use crate::transport::message::Message;
use crate::transport::patience::Patience;
use crate::transport::patience::Wait;
use blizzard_contract::{BLOCK_BYTES, Counter, PUSH_PLACES};
use blizzard_protocol::engine::access::AccessProgress;
use blizzard_protocol::ids::{Block, NodeId};
use blizzard_protocol::operation::Operation;
use blizzard_protocol::port::{BlockSite, Port};
use blizzard_protocol::protocol::messages::PUSH;
pub use blizzard_protocol::protocol::pins::LANE_BLOCKS;
use blizzard_protocol::protocol::seam::PREFETCHES;
use blizzard_protocol::tag::Tag;

/// Lanes of the widest gather: 16 elements of 4 bytes in 64.
pub const MAX_LANES: usize = 16;

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
        self.engine.pins.begin_range(block);
        loop {
            self.acquire(block, store, masked);
            self.engine.pins.extend_range(block);
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
            self.engine.pins.add(Block::of(addr));
        }
    }

    /// Bytes of the block that holds `addr`.
    #[inline(always)]
    fn block_bytes(&self, addr: u64) -> u64 {
        match self.home_table.place(&self.homes, addr) {
            Some(place) => place.block.bytes(),
            None => self.space.block_bytes(addr),
        }
    }

    /// Forgets the access before: its instruction has been executed. Then handles what it held up.
    #[inline]
    pub fn end_last_access(&mut self) {
        self.engine.end_last_access(&mut self.links);
    }

    /// Whether something waits for the access in progress to be executed.
    #[inline]
    pub fn holds_work(&self) -> bool {
        self.engine.holds_work()
    }

    /// A step of a wait in which nothing has arrived.
    #[inline]
    pub fn idle(&mut self, patience: &mut Patience) {
        let most_looks = self.engine.patience();
        if most_looks == u32::MAX {
            // No protocol has anything to do without a message.
            self.transport.idle(patience, most_looks, u64::MAX, alarm::is_due);
        } else {
            self.idle_with_work(patience, most_looks);
        }
    }

    #[inline(never)]
    fn idle_with_work(&mut self, patience: &mut Patience, most_looks: u32) {
        let longest_ns = self.engine.longest_sleep();
        let idled = self.transport.idle(patience, most_looks, longest_ns, alarm::is_due);
        self.engine.idle(&mut self.links, idled);
    }

    /// [`Node::idle`]; a sleep is no longer than that. True: it slept.
    #[inline(never)]
    pub fn idle_shortly(&mut self, patience: &mut Patience, longest_ns: u64) -> bool {
        let most_looks = self.engine.patience();
        let longest_ns = longest_ns.min(self.engine.longest_sleep());
        let idled = self.transport.idle(patience, most_looks, longest_ns, alarm::is_due);
        self.engine.idle(&mut self.links, idled);
        idled.slept
    }

    /// Makes one block accessible; on return the caller pins it.
    fn acquire(&mut self, block: Block, store: bool, masked: bool) {
        if self.space.allows(block, store) {
            return;
        }
        let place = self.home_table.place(&self.homes, block.addr());
        if !self.is_handed_out_in(place.map(|place| place.arena), block, store) {
            return self.refuse_unallocated(block, masked);
        }
        let site = match place {
            Some(place) => self.links.site_at(block.addr(), place),
            None => self.locate_unknown(block),
        };
        if self.hints.take(block) {
            self.count_hint(&site);
        }
        if self.engine.acquire(&mut self.links, &site, store) == AccessProgress::Done {
            return;
        }
        loop {
            self.wait(Wait::Miss, |node| node.engine.is_granted());
            if self.engine.go_on(&mut self.links) == AccessProgress::Done {
                return self.take_what_has_come();
            }
        }
    }

    /// A block is missed that a hint has asked for.
    #[cold]
    fn count_hint(&self, site: &BlockSite) {
        // A copy that is there is no good for a store alone.
        match self.links.tag(site.block) {
            _ if self.engine.is_outstanding(site) => self.count(Counter::HintsLate),
            Some(Tag::Invalid) => self.count(Counter::HintsLost),
            _ => {}
        }
    }

    /// The block with its home; the first node to use a page becomes it.
    #[cold]
    fn locate_unknown(&mut self, block: Block) -> BlockSite {
        if self.home_table.is_unknown(&self.homes, block.addr()) {
            self.ask_home(block);
        }
        let site = self.links.site(block.addr());
        site.unwrap_or_else(|| self.fail(format_args!("block {:#x} has no home", block.addr())))
    }

    fn ask_home(&mut self, block: Block) {
        let Some(keeper) = self.homes.home_of(block.addr()) else { return };
        let me = self.me;
        if keeper == me {
            self.home_table.learn(block.addr(), me);
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
            Some(_) if has_bug!(self, AskerIsHome) => self.home_table.learn(block.addr(), me),
            Some(home) => self.home_table.learn(block.addr(), home),
            None => self.fail(format_args!("protocol error: the home of {:#x} is node {number}", block.addr())),
        }
        if home == Some(me) {
            self.count(Counter::PagesHomed);
        }
    }

    /// Notes that pages have their homes in slices; false if one has another home.
    pub fn learn_slices(&mut self, addr: u64, bytes: u64) -> bool {
        let (nodes, me) = (self.homes.nodes(), self.me);
        let Some(own) = self.home_table.learn_slices((addr, bytes), nodes, me) else { return false };
        self.context.add_unlocked(Counter::PagesHomed, own);
        true
    }

    /// Notes the operation of memory that is handed out, perhaps again: it begins anew.
    pub fn begin_operation(&mut self, (addr, bytes): (u64, u64), operation: Operation, recycled: bool) {
        let Some(arena) = self.homes.arena_of(addr) else { return };
        self.learn_limit(arena, addr + bytes);
        self.links.set_operation((addr, bytes), operation);
        if recycled {
            self.engine.forget(&mut self.links, arena.protocol(), addr, bytes);
        }
    }

    fn node_count(&self) -> usize {
        self.homes.nodes() as usize
    }

    /// Where blocks are asked for ahead, their data are likely to come together with what was waited for: takes them, so that the program finds
    /// them accessible. The block that was granted is pinned: messages about it are put aside.
    fn take_what_has_come(&mut self) {
        if self.engine.has_outstanding() {
            self.serve();
        }
    }

    /// Whether the block's memory has been handed out; asks its owner if this node does not know. Loads may go on to the end of a page that has been
    /// handed out in part, where all is zero: the C library reads strings in vectors, and so past their ends, though never into another page.
    fn is_handed_out(&mut self, block: Block, store: bool) -> bool {
        let place = self.home_table.place(&self.homes, block.addr());
        self.is_handed_out_in(place.map(|place| place.arena), block, store)
    }

    /// [`Node::is_handed_out`] for who may know the arena.
    #[inline]
    fn is_handed_out_in(&mut self, arena: Option<ArenaId>, block: Block, store: bool) -> bool {
        let Some(arena) = arena.or_else(|| self.homes.arena_of(block.addr())) else { return false };
        self.is_below_limit(arena, block, store) || self.ask_limit(arena) && self.is_below_limit(arena, block, store)
    }

    fn is_below_limit(&self, arena: ArenaId, block: Block, store: bool) -> bool {
        let limit = self.handed_out[arena.index()];
        block.addr() < limit || !store && block.addr() < limit.next_multiple_of(PAGE_BYTES)
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
        self.engine.serve(&self.links, arena.protocol());
        let known = &mut self.handed_out[arena.index()];
        let before = core::mem::replace(known, limit.max(*known));
        if let Some(range) = self.homes.arena_range(arena).filter(|_| limit > before) {
            self.space.show_in_dumps(range, before, limit);
        }
    }

    #[cold]
    fn refuse_unallocated(&mut self, block: Block, masked: bool) {
        if !masked {
            self.fail_at(
                block.addr(),
                format_args!(
                    "access to {:#x}..{:#x}: shared memory that was never allocated",
                    block.addr(),
                    block.addr().saturating_add(self.space.block_bytes(block.addr()))
                ),
            );
        }
    }

    /// A page was acquired before its home existed: makes room for it, if it has another home now.
    pub fn note_page(&mut self, block: Block) {
        self.engine.note_page_of(&mut self.links, block.addr());
    }

    /// Stops replacement while the memory of a system call is acquired, range by range.
    pub fn hold_pages(&mut self, hold: bool) {
        self.engine.hold_pages(&self.links, hold);
    }

    /// Calls `each` with the blocks of a range of shared memory that have been handed out. The range may be much larger than what is shared of it.
    fn each_shared_block(&mut self, addr: u64, bytes: u64, mut each: impl FnMut(&mut Node, Block)) {
        let segment = self.space.range();
        let first = addr.max(segment.start);
        let end = addr.saturating_add(bytes).min(segment.end);
        if first >= end {
            return;
        }
        let mut next = Some(self.space.block_of(first));
        while let Some(block) = next.filter(|block| block.addr() < end) {
            if self.is_handed_out(block, true) {
                each(self, block);
                next = self.space.after(block);
            } else {
                // So is the rest of its arena.
                let arena = self.homes.arena_of(block.addr()).and_then(|arena| self.homes.arena_range(arena));
                let skipped = arena.map_or((block.addr() | (PAGE_BYTES - 1)) + 1, |(base, bytes)| base + bytes);
                next = Some(self.space.block_of(skipped));
            }
        }
    }

    /// Asks for blocks without waiting for them, as long as requests may be outstanding.
    pub fn prefetch(&mut self, addr: u64, bytes: u64, store: bool) {
        self.each_shared_block(addr, bytes, |node, block| {
            if node.engine.prefetch(&mut node.links, block, store) {
                node.hints.note(block);
            }
        });
    }

    /// Acquires blocks, many at a time; returns when each has been here.
    pub fn check_out(&mut self, addr: u64, bytes: u64, store: bool) {
        let end = addr.saturating_add(bytes);
        self.hints.check_out(true);
        self.prefetch(addr, bytes, store);
        self.each_shared_block(addr, bytes, |node, block| {
            node.end_last_access();
            if store && node.engine.begin_to_store(&mut node.links, block) {
                return;
            }
            // The requests that were answered make room for those that are to come.
            let unit = node.space.block_bytes(block.addr());
            let ahead = block.addr() + unit;
            let window = (PREFETCHES as u64 * unit).min(end.saturating_sub(ahead));
            if !node.space.allows(block, store) {
                node.prefetch(ahead, window, store);
            }
            node.access(block.addr(), 1, store, true);
        });
        self.end_last_access();
        self.hints.check_out(false);
    }

    /// Gives the copies of a range back to their homes.
    pub fn check_in(&mut self, addr: u64, bytes: u64) {
        self.each_shared_block(addr, bytes, |node, block| {
            if node.engine.check_in(&mut node.links, block) {
                node.count(Counter::BlocksCheckedIn);
            }
        });
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

/// A node has got pages that nobody has used, whose homes are in slices. Answer: `args[0]`: 1, or 0 if some node uses one of them already.
pub fn on_slices(node: &mut Node, from: NodeId, message: &Message) {
    let (addr, bytes) = (message.addr, message.args[0]);
    let is_whole = bytes != 0 && addr.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES);
    let end = addr.checked_add(bytes).filter(|_| is_whole);
    let in_arena = end.is_some_and(|end| {
        let [first, last] = [addr, end - 1].map(|at| node.homes.arena_of(at));
        first.is_some() && first == last && node.home_table.is_first_touch(&node.homes, addr)
    });
    if !in_arena {
        return node.count(Counter::MessagesRejected);
    }
    let known = node.learn_slices(addr, bytes);
    node.send(from, Message { handler: id::SLICES_KNOWN, args: [known.into(), 0, 0], ..*message });
}

/// A node hands out whole pages whose elements are combined. `args`: bytes, the operation's number, and 1 if they were in use before.
pub fn on_operation(node: &mut Node, from: NodeId, message: &Message) {
    let (addr, [bytes, operation, recycled]) = (message.addr, message.args);
    let operation = u32::try_from(operation).ok().and_then(Operation::from_number);
    let is_whole = bytes != 0 && addr.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES);
    let end = addr.checked_add(bytes).filter(|_| is_whole);
    let in_arena = end.is_some_and(|end| {
        let [first, last] = [addr, end - 1].map(|at| node.homes.arena_of(at));
        first.is_some_and(|arena| arena.protocol().has_operations()) && first == last
    });
    let Some(operation) = operation.filter(|_| in_arena) else {
        return node.count(Counter::MessagesRejected);
    };
    node.begin_operation((addr, bytes), operation, recycled != 0);
    node.send(from, Message { handler: id::OPERATION_KNOWN, ..*message });
}

/// Handler of all messages of protocols, and of the parts of data that come before them.
#[inline]
pub fn on_message(node: &mut Node, from: NodeId, message: &Message) {
    let data = (u64::from(message.length) == BLOCK_BYTES).then_some(&message.data);
    node.engine.message(&mut node.links, from, message.handler, message.addr, data);
}

/// A home pushes many blocks. `args`: the place of the piece, and how many blocks it has.
pub fn on_pushes(node: &mut Node, from: NodeId, message: &Message) {
    let [place, blocks, _] = message.args;
    if place >= PUSH_PLACES || blocks > PIECE_BLOCKS {
        return node.count(Counter::MessagesRejected);
    }
    for at in 0..blocks {
        let (addr, data) = pushes::read(&node.region, from, place, at);
        let is_its = node.space.contains(addr) && node.home_table.home_of(&node.homes, addr) == Some(from);
        if is_its && addr.is_multiple_of(BLOCK_BYTES) {
            node.engine.message(&mut node.links, from, PUSH, addr, Some(&data));
        } else {
            node.count(Counter::MessagesRejected);
        }
    }
}
