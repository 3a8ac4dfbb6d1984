//! Shared allocation across the nodes.
//!
//! Purpose: [`Node::alloc`] and [`Node::free`] ask the owner of an arena, by message when that is another node, and wait for its
//! answer. Input: sizes, homes, addresses. Output: zeroed memory.
//! **Invariants**: only an arena's owner touches its bookkeeping; memory is zero when its address is returned: fresh memory is zero at its
//! home from the start, recycled memory is zeroed by the node that asked, with ordinary coherent stores.

use crate::abi::{BLOCK_BYTES, Counter};
use crate::alloc::{Arena, FreeError};
use crate::homes::{ArenaId, Homes, PAGE_BYTES};
use crate::msg::id;
use crate::node::Node;
use crate::protocol::NodeId;
use crate::stats::Wait;
use crate::sys;
use crate::transport::Message;

/// The arenas that one node owns.
pub struct Arenas {
    zone: Arena,
    /// Node 0 only.
    interleaved: Option<Arena>,
    zone_id: ArenaId,
}

impl Arenas {
    /// The arenas of node `me`.
    pub fn new(homes: &Homes, me: NodeId) -> sys::Result<Arenas> {
        let make = |arena| {
            let (base, bytes) = homes.arena_range(arena);
            Arena::new(base, bytes)
        };
        let interleaved =
            if homes.owner_of(ArenaId::INTERLEAVED) == Some(me) { Some(make(ArenaId::INTERLEAVED)?) } else { None };
        let zone_id = ArenaId::zone_of(me);
        Ok(Arenas { zone: make(zone_id)?, interleaved, zone_id })
    }

    /// The arena of that number, if this node owns it.
    pub fn get(&mut self, arena: ArenaId) -> Option<&mut Arena> {
        if arena == ArenaId::INTERLEAVED {
            self.interleaved.as_mut()
        } else if arena == self.zone_id {
            Some(&mut self.zone)
        } else {
            None
        }
    }
}

/// Answers of [`on_free`] in `args[0]`.
const FREED_OK: u64 = 0;
const FREED_ALREADY: u64 = 1;
const FREED_FOREIGN: u64 = 2;

impl Node {
    /// Allocates zeroed memory with homes by policy (`None`) or on one node; 0 when there is no room.
    pub fn alloc(&mut self, home: Option<NodeId>, bytes: u64) -> u64 {
        let arena = home.map_or(ArenaId::INTERLEAVED, ArenaId::zone_of);
        let Some(owner) = self.homes.owner_of(arena) else { return 0 };
        let key = self.fresh_key();
        // Whole blocks, so that no two allocations share one, and each begins at one.
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(self.space.block_bytes()) else { return 0 };
        let request = Message { handler: id::ALLOC, args: [arena.index() as u64, bytes, 0], key, ..Message::default() };
        let reply = self.call(owner, request, id::ALLOCATED, Wait::Other);
        let [got_bytes, recycled, limit] = reply.args;
        self.coherence.learn_limit(arena, limit);
        if reply.addr == 0 {
            return 0;
        }
        if recycled != 0 {
            self.zero(reply.addr, got_bytes);
        }
        self.count(Counter::Allocations);
        self.context.add_alone(Counter::AllocatedBytes, got_bytes);
        reply.addr
    }

    /// Writes zeros block by block, as the program itself would.
    fn zero(&mut self, addr: u64, bytes: u64) {
        for block in (addr..addr + bytes).step_by(BLOCK_BYTES as usize) {
            self.end_last_access();
            self.access(block, BLOCK_BYTES, true, false);
            self.space.write(crate::tags::Block::of(block), &[0; 8]);
            if block.is_multiple_of(PAGE_BYTES) {
                // A long stretch of local blocks must not keep the peers waiting.
                self.end_last_access();
                self.serve();
            }
        }
    }

    /// Gives memory back; an address that no allocation returned ends the run.
    pub fn free(&mut self, addr: u64) {
        let owner = self.homes.arena_of(addr).filter(|_| self.space.contains(addr));
        let Some(owner) = owner.and_then(|arena| self.homes.owner_of(arena)) else {
            self.fail(format_args!("bz_free: {addr:#x} is not shared memory"));
        };
        let request = Message { handler: id::FREE, addr, key: self.fresh_key(), ..Message::default() };
        let error = match self.call(owner, request, id::FREED, Wait::Other).args[0] {
            FREED_OK => return,
            FREED_ALREADY => FreeError::AlreadyFree,
            _ => FreeError::NotAllocated,
        };
        self.fail(format_args!("bz_free: {addr:#x} {}", error.text()));
    }
}

/// `args`: arena, bytes. Answer: address (0: no room), `args`: bytes, recycled, the arena's limit.
pub fn on_alloc(node: &mut Node, from: NodeId, message: &Message) {
    let [arena, bytes, _] = message.args;
    let Some(arena) = node.homes.arena(arena).and_then(|arena| node.arenas.get(arena)) else {
        return node.count(Counter::MessagesRejected);
    };
    let chunk = arena.alloc(bytes);
    let limit = arena.limit();
    let reply = match chunk {
        Some(chunk) => Message { addr: chunk.addr, args: [chunk.bytes, chunk.recycled.into(), limit], ..*message },
        None => Message { addr: 0, args: [0, 0, limit], ..*message },
    };
    node.send(from, Message { handler: id::ALLOCATED, ..reply });
}

/// Address: what to free. Answer: `args[0]`, see [`FREED_OK`] and its neighbours.
pub fn on_free(node: &mut Node, from: NodeId, message: &Message) {
    let arena = node.homes.arena_of(message.addr);
    let Some(arena) = arena.and_then(|arena| node.arenas.get(arena)) else {
        return node.count(Counter::MessagesRejected);
    };
    let code = match arena.free(message.addr) {
        Ok(_) => FREED_OK,
        Err(FreeError::AlreadyFree) => FREED_ALREADY,
        Err(FreeError::NotAllocated) => FREED_FOREIGN,
    };
    node.send(from, Message { handler: id::FREED, args: [code, 0, 0], ..*message });
}

/// `args[0]`: arena. Answer: `args[0]`: the first address of it that was never handed out.
pub fn on_limit_query(node: &mut Node, from: NodeId, message: &Message) {
    let Some(arena) = node.homes.arena(message.args[0]).and_then(|arena| node.arenas.get(arena)) else {
        return node.count(Counter::MessagesRejected);
    };
    let limit = arena.limit();
    node.send(from, Message { handler: id::LIMIT, args: [limit, 0, 0], ..*message });
}
