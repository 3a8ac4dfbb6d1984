//! Shared allocation across the nodes.
//!
//! Purpose: [`Node::alloc`] and [`Node::free`] ask the owner of an arena, by message when that is another node, and wait for its
//! answer. Input: sizes, attributes, addresses. Output: zeroed memory.
//! **Invariants**: only an arena's owner touches its bookkeeping; memory is zero when its address is returned: fresh memory is zero at its
//! home from the start, recycled memory is zeroed by the node that asked, with ordinary coherent stores.

use crate::kernel::sys;
use crate::memory::homes::{ArenaId, Attributes, Homes, PAGE_BYTES, Placement};
use crate::messages::id;
use crate::node::Node;
use crate::node::stats::Wait;
use crate::shared_memory::alloc::{Arena, Chunk, FreeError};
use crate::transport::message::Message;
use blizzard_contract::{BLOCK_BYTES, Counter};
use blizzard_contract::{BLOCK_SIZES, LOWER_ARENAS};
use blizzard_protocol::ids::NodeId;

/// An allocation for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// What is left of the part of the segment that such allocations come from, in pieces that are too small.
    pub free_bytes: u64,
}

/// The arenas that one node owns: each comes into being with its first allocation.
pub struct Arenas {
    homes: Homes,
    me: NodeId,
    zone: [Option<Arena>; BLOCK_SIZES],
    /// Of the lower half: node 0 only.
    lower: [Option<Arena>; LOWER_ARENAS],
}

impl Arenas {
    /// The arenas of node `me`. `homes`: with all nodes present.
    ///
    /// # Errors
    /// The kernel's, when it gives no address space for those that the run's own settings lead to.
    pub fn new(homes: &Homes, me: NodeId) -> sys::Result<Arenas> {
        let mut arenas =
            Arenas { homes: *homes, me, zone: [const { None }; BLOCK_SIZES], lower: [const { None }; LOWER_ARENAS] };
        let defaults = homes.partition().defaults();
        for placement in [defaults.homes, Placement::Node(me)] {
            arenas
                .get(ArenaId::of(Attributes { homes: placement, ..defaults }))
                .map_or(Ok(()), |found| found.map(drop))?;
        }
        Ok(arenas)
    }

    /// Where the arena of that number is kept, if this node owns it.
    fn place(&mut self, arena: ArenaId) -> Option<&mut Option<Arena>> {
        match arena.zone() {
            None if self.me.index() == 0 => self.lower.get_mut(arena.index()),
            Some(zone) if zone == self.me.index() as u64 => {
                self.zone.get_mut((arena.index() - LOWER_ARENAS) % BLOCK_SIZES)
            }
            _ => None,
        }
    }

    /// The arena of that number, if this node owns it and the run has room for it.
    ///
    /// # Errors
    /// The kernel's, when it gives no address space.
    pub fn get(&mut self, arena: ArenaId) -> Option<sys::Result<&mut Arena>> {
        let (base, bytes) = self.homes.arena_range(arena)?;
        let place = self.place(arena)?;
        if place.is_none() {
            match Arena::new(base, bytes) {
                Ok(made) => *place = Some(made),
                Err(e) => return Some(Err(e)),
            }
        }
        place.as_mut().map(Ok)
    }

    /// Takes memory out of an arena of this node's. And the arena's limit.
    pub fn alloc(&mut self, arena: ArenaId, bytes: u64) -> Option<(Result<Chunk, Full>, u64)> {
        self.place(arena)?;
        Some(match self.get(arena) {
            Some(Ok(arena)) => {
                let chunk = arena.alloc(bytes).ok_or(Full { free_bytes: arena.free_bytes() });
                (chunk, arena.limit())
            }
            // What cannot be kept account of cannot be handed out.
            Some(Err(_)) | None => (Err(Full { free_bytes: 0 }), 0),
        })
    }

    /// The first address of an arena that was never handed out; `None` if it is not in this node's keeping.
    pub fn limit(&mut self, arena: ArenaId) -> Option<u64> {
        Some(self.place(arena)?.as_ref().map_or(0, Arena::limit))
    }

    /// Gives memory back to an arena of this node's; `None` if it is another node's.
    pub fn free(&mut self, addr: u64) -> Option<Result<u64, FreeError>> {
        let arena = self.homes.arena_of(addr)?;
        Some(self.place(arena)?.as_mut().map_or(Err(FreeError::NotAllocated), |arena| arena.free(addr)))
    }
}

/// Answers of [`on_free`] in `args[0]`.
const FREED_OK: u64 = 0;
const FREED_ALREADY: u64 = 1;
const FREED_FOREIGN: u64 = 2;

/// The bytes of an allocation, at least one block; more than any arena has where they are no number.
pub fn whole_blocks(attributes: Attributes, bytes: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(attributes.block.bytes()).unwrap_or(u64::MAX)
}

impl Node {
    /// Allocates zeroed memory.
    ///
    /// # Errors
    /// There is no room.
    pub fn alloc(&mut self, attributes: Attributes, bytes: u64) -> Result<u64, Full> {
        const NO_ARENA: Full = Full { free_bytes: 0 };
        let arena = self.homes.arena_for(attributes).ok_or(NO_ARENA)?;
        let owner = self.homes.owner_of(arena).ok_or(NO_ARENA)?;
        let key = self.fresh_key();
        // Whole blocks, so that no two allocations share one, and each begins at one.
        let bytes = whole_blocks(attributes, bytes);
        let request = Message { handler: id::ALLOC, args: [arena.index() as u64, bytes, 0], key, ..Message::default() };
        let reply = self.call(owner, request, id::ALLOCATED, Wait::Other);
        let [got_bytes, recycled, limit] = reply.args;
        self.learn_limit(arena, limit);
        if reply.addr == 0 {
            return Err(Full { free_bytes: got_bytes });
        }
        if recycled != 0 {
            self.zero(reply.addr, got_bytes);
        }
        self.count(Counter::Allocations);
        self.context.add_alone(Counter::AllocatedBytes, got_bytes);
        Ok(reply.addr)
    }

    /// [`Node::alloc`] with the run's block size, and homes by policy (`None`) or on one node.
    #[cfg(test)]
    pub fn alloc_home(&mut self, home: Option<NodeId>, bytes: u64) -> u64 {
        let defaults = self.alloc_defaults();
        self.alloc(Attributes { homes: home.map_or(defaults.homes, Placement::Node), ..defaults }, bytes).unwrap_or(0)
    }

    /// What allocations have that do not choose.
    pub fn alloc_defaults(&self) -> Attributes {
        self.homes.partition().defaults()
    }

    /// Writes zeros block by block, as the program itself would.
    fn zero(&mut self, addr: u64, bytes: u64) {
        for block in (addr..addr + bytes).step_by(BLOCK_BYTES as usize) {
            self.end_last_access();
            self.access(block, BLOCK_BYTES, true, false);
            self.space.write(blizzard_protocol::ids::Block::of(block), &[0; 8]);
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

/// `args`: arena, bytes. Answer: address (0: no room), `args`: bytes (without room: those that are free), recycled, the arena's limit.
pub fn on_alloc(node: &mut Node, from: NodeId, message: &Message) {
    let [arena, bytes, _] = message.args;
    let Some((chunk, limit)) = node.homes.arena(arena).and_then(|arena| node.arenas.alloc(arena, bytes)) else {
        return node.count(Counter::MessagesRejected);
    };
    let reply = match chunk {
        Ok(chunk) => Message { addr: chunk.addr, args: [chunk.bytes, chunk.recycled.into(), limit], ..*message },
        Err(full) => Message { addr: 0, args: [full.free_bytes, 0, limit], ..*message },
    };
    node.send(from, Message { handler: id::ALLOCATED, ..reply });
}

/// Address: what to free. Answer: `args[0]`, see [`FREED_OK`] and its neighbours.
pub fn on_free(node: &mut Node, from: NodeId, message: &Message) {
    let freed = match node.arenas.free(message.addr) {
        Some(freed) => freed,
        // As in `on_limit_query`.
        None if node.homes.arena_of(message.addr).and_then(|arena| node.homes.owner_of(arena)) == Some(node.me) => {
            Err(FreeError::NotAllocated)
        }
        None => return node.count(Counter::MessagesRejected),
    };
    let code = match freed {
        Ok(_) => FREED_OK,
        Err(FreeError::AlreadyFree) => FREED_ALREADY,
        Err(FreeError::NotAllocated) => FREED_FOREIGN,
    };
    node.send(from, Message { handler: id::FREED, args: [code, 0, 0], ..*message });
}

/// `args[0]`: arena. Answer: `args[0]`: the first address of it that was never handed out.
pub fn on_limit_query(node: &mut Node, from: NodeId, message: &Message) {
    let arena = node.homes.arena(message.args[0]);
    let limit = match arena.and_then(|arena| node.arenas.limit(arena)) {
        Some(limit) => limit,
        // The zone of a node that was never created: this one stands in for it, and nothing is allocated there.
        None if arena.and_then(|arena| node.homes.owner_of(arena)) == Some(node.me) => 0,
        None => return node.count(Counter::MessagesRejected),
    };
    node.send(from, Message { handler: id::LIMIT, args: [limit, 0, 0], ..*message });
}
