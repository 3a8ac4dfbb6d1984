//! Shared allocation: the calls of the program. An arena's owner does them without a message; the others ask it and wait.
//!
//! Input: sizes, attributes, addresses. Output: zeroed memory. Small allocations that choose nothing come from the node's own pool, so no node asks for them.
//! **Invariant**: memory is zero when its address is returned: fresh memory is zero at its home from the start, recycled memory is zeroed by the node
//! that asked, with ordinary coherent stores.

use crate::memory::arena::{Chunk, FreeError};
use crate::memory::homes::{ArenaId, Attributes, PAGE_BYTES, Placement};
use crate::messages::kinds::id;
use crate::node::arenas::{ArenasFull, FREED_ALREADY, FREED_OK, IN_SLICES, whole_blocks};
use crate::node::node::Node;
use crate::transport::message::Message;
use crate::transport::patience::Wait;
use blizzard_contract::{BLOCK_BYTES, Counter};
use blizzard_protocol::ids::Block;
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::operation::Operation;

/// Allocations of at most so many bytes come from the pool: larger ones are rare, and the pool is a small part of the segment.
const POOLED_BYTES: u64 = 64 << 10;

impl Node {
    /// Allocates zeroed memory without attributes of its own: a small piece in this node's pool. `by`: the place in the program that wants it.
    ///
    /// # Errors
    /// There is no room.
    pub fn alloc_plain(&mut self, bytes: u64, by: u64) -> Result<u64, ArenasFull> {
        let defaults = self.alloc_defaults();
        if bytes <= POOLED_BYTES
            && let Some(pool) = self.homes.pool_of(self.me)
            && let Ok(chunk) = self.alloc_in(pool, whole_blocks(defaults, bytes), by, false)
        {
            return Ok(self.hand_out(chunk));
        }
        self.alloc(defaults, bytes, by)
    }

    /// Allocates zeroed memory. `by`: the place in the program that wants it.
    ///
    /// # Errors
    /// There is no room.
    pub fn alloc(&mut self, attributes: Attributes, bytes: u64, by: u64) -> Result<u64, ArenasFull> {
        if let Some(operation) = attributes.operation {
            return self.alloc_combined(attributes, operation, bytes, by);
        }
        let arena = self.homes.arena_for(attributes).ok_or(ArenasFull::NO_ARENA)?;
        // Whole blocks, so that no two allocations share one, and each begins at one.
        let sliced = attributes.homes == Placement::Slices && self.home_table.migrates();
        let chunk = self.alloc_in(arena, whole_blocks(attributes, bytes), by, sliced)?;
        if sliced && !chunk.recycled {
            self.deal_out(chunk);
        }
        Ok(self.hand_out(chunk))
    }

    /// Allocates whole pages whose elements are combined by an operation, and tells all nodes so. First touch would make the first node that adds the home: it
    /// means by turn.
    fn alloc_combined(
        &mut self,
        attributes: Attributes,
        operation: Operation,
        bytes: u64,
        by: u64,
    ) -> Result<u64, ArenasFull> {
        if self.homes.present() < self.homes.nodes() {
            self.fail(format_args!(
                "memory with the protocol `{}` can be allocated when all {} nodes of the run have been created",
                attributes.protocol.name(),
                self.homes.nodes()
            ));
        }
        let homes = if attributes.homes == Placement::FirstTouch { Placement::RoundRobin } else { attributes.homes };
        let attributes = Attributes { homes, ..attributes };
        let arena = self.homes.arena_for(attributes).ok_or(ArenasFull::NO_ARENA)?;
        let chunk = self.alloc_in(arena, whole_blocks(attributes, bytes), by, true)?;
        if homes == Placement::Slices && self.home_table.migrates() && !chunk.recycled {
            self.deal_out(chunk);
        }
        let Chunk { addr, bytes, recycled } = chunk;
        self.begin_operation((addr, bytes), operation, recycled);
        let (nodes, me) = (self.homes.nodes(), self.me);
        let args = [bytes, operation.number().into(), recycled.into()];
        for node in (0..nodes).filter_map(NodeId::new).filter(|&node| node != me) {
            let request = Message { handler: id::OPERATION, addr, args, key: self.fresh_key(), ..Message::default() };
            self.ask(node, request, id::OPERATION_KNOWN, Wait::Other);
        }
        self.count(Counter::Allocations);
        self.context.add_unlocked(Counter::AllocatedBytes, bytes);
        Ok(addr)
    }

    /// Tells all nodes that these pages have their homes in slices, before anybody uses one.
    fn deal_out(&mut self, Chunk { addr, bytes, .. }: Chunk) {
        let mut known = self.learn_slices(addr, bytes);
        let (nodes, me) = (self.homes.nodes(), self.me);
        for node in (0..nodes).filter_map(NodeId::new).filter(|&node| node != me) {
            let request =
                Message { handler: id::SLICES, addr, args: [bytes, 0, 0], key: self.fresh_key(), ..Message::default() };
            known &= self.ask(node, request, id::SLICES_KNOWN, Wait::Other).args[0] != 0;
        }
        if !known {
            self.fail_at(addr, format_args!("shared memory at {addr:#x} was used before its allocation had returned"));
        }
    }

    /// Zeroes a chunk if it was in use before.
    fn hand_out(&mut self, chunk: Chunk) -> u64 {
        if chunk.recycled {
            self.zero(chunk.addr, chunk.bytes);
            // Whoever has copies from before finds zeros, however it learns of the address.
            self.flush();
            self.forget_stores(chunk.addr, chunk.bytes);
        }
        self.count(Counter::Allocations);
        self.context.add_unlocked(Counter::AllocatedBytes, chunk.bytes);
        chunk.addr
    }

    /// Takes memory out of an arena.
    fn alloc_in(&mut self, arena: ArenaId, bytes: u64, by: u64, sliced: bool) -> Result<Chunk, ArenasFull> {
        let (found, limit) = match self.arenas.alloc(arena, bytes, by, sliced) {
            Some(own) => own,
            None => {
                let owner = self.homes.owner_of(arena).ok_or(ArenasFull::NO_ARENA)?;
                let key = self.fresh_key();
                let args = [arena.index() as u64 | if sliced { IN_SLICES } else { 0 }, bytes, by];
                let request = Message { handler: id::ALLOC, args, key, ..Message::default() };
                let reply = self.ask(owner, request, id::ALLOCATED, Wait::Other);
                let [got_bytes, recycled, limit] = reply.args;
                let chunk = Chunk { addr: reply.addr, bytes: got_bytes, recycled: recycled != 0 };
                let full =
                    || ArenasFull { free_bytes: got_bytes, enough_gib: self.homes.enough_gib(arena, bytes, limit) };
                (if chunk.addr == 0 { Err(full()) } else { Ok(chunk) }, limit)
            }
        };
        if limit > self.handed_out[arena.index()] {
            self.learn_limit(arena, limit);
        }
        found
    }

    /// [`Node::alloc`] with the run's block size, and homes by policy (`None`) or on one node.
    #[cfg(test)]
    pub fn alloc_home(&mut self, home: Option<NodeId>, bytes: u64) -> u64 {
        let defaults = self.alloc_defaults();
        self.alloc(Attributes { homes: home.map_or(defaults.homes, Placement::Node), ..defaults }, bytes, 0)
            .unwrap_or(0)
    }

    /// What allocations have that do not choose.
    pub fn alloc_defaults(&self) -> Attributes {
        self.homes.partition().defaults()
    }

    /// Writes zeros block by block, as the program itself would.
    fn zero(&mut self, addr: u64, bytes: u64) {
        for block in (addr..addr + bytes).step_by(BLOCK_BYTES as usize) {
            if !self.space.allows(Block::of(block), true) {
                self.end_last_access();
                self.access(block, BLOCK_BYTES, true, false);
            }
            self.space.write(Block::of(block), &[0; 8]);
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
        let freed = match self.arenas.free(addr) {
            Some(freed) => freed.map(drop),
            None => {
                let request = Message { handler: id::FREE, addr, key: self.fresh_key(), ..Message::default() };
                match self.ask(owner, request, id::FREED, Wait::Other).args[0] {
                    FREED_OK => Ok(()),
                    FREED_ALREADY => Err(FreeError::AlreadyFree),
                    _ => Err(FreeError::NotAllocated),
                }
            }
        };
        if let Err(error) = freed {
            self.fail_at(addr, format_args!("bz_free: {addr:#x} {}", error.text()));
        }
    }
}
