//! Shared allocation: the calls of the program, which ask an arena's owner and wait.
//!
//! Input: sizes, attributes, addresses. Output: zeroed memory.
//! **Invariant**: memory is zero when its address is returned: fresh memory is zero at its home from the start, recycled memory is zeroed by the node
//! that asked, with ordinary coherent stores.

use crate::memory::arena::FreeError;
#[cfg(test)]
use crate::memory::homes::Placement;
use crate::memory::homes::{Attributes, PAGE_BYTES};
use crate::messages::kinds::id;
use crate::node::arenas::{FREED_ALREADY, FREED_OK, Full, whole_blocks};
use crate::node::node::Node;
use crate::transport::message::Message;
use crate::transport::patience::Wait;
use blizzard_contract::{BLOCK_BYTES, Counter};
use blizzard_protocol::ids::Block;
#[cfg(test)]
use blizzard_protocol::ids::NodeId;

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
        let reply = self.ask(owner, request, id::ALLOCATED, Wait::Other);
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
        let request = Message { handler: id::FREE, addr, key: self.fresh_key(), ..Message::default() };
        let error = match self.ask(owner, request, id::FREED, Wait::Other).args[0] {
            FREED_OK => return,
            FREED_ALREADY => FreeError::AlreadyFree,
            _ => FreeError::NotAllocated,
        };
        self.fail(format_args!("bz_free: {addr:#x} {}", error.text()));
    }
}
