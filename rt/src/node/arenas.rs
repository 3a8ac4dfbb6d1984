//! The arenas that one node owns, and the handlers of what other nodes ask of them.
//!
//! Input: arenas, sizes, addresses; messages. Output: memory, answers. **Invariant**: only an arena's owner touches its bookkeeping.

use crate::kernel::own_memory::{KernelTable, Zeroed};
use crate::kernel::sys;
use crate::links::links::Links;
use crate::memory::arena::{Arena, Chunk, FreeError};
use crate::memory::homes::{ArenaId, Attributes, Homes, Placement};
use crate::memory::partition::{IN_ZONE, LOWER};
use crate::messages::kinds::id;
use crate::transport::message::Message;
use blizzard_contract::{ArenaRecord, Counter, OWN_ARENAS};
use blizzard_protocol::ids::NodeId;

/// An allocation for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenasFull {
    /// What is left of the part of the segment that such allocations come from, in pieces that are too small.
    pub free_bytes: u64,
    /// The least GiB of a larger segment that has room for it; `None`: none has.
    pub enough_gib: Option<u64>,
}

impl ArenasFull {
    /// There is no such part.
    pub const NO_ARENA: ArenasFull = ArenasFull { free_bytes: 0, enough_gib: None };
}

/// The arenas that one node owns: each comes into being with its first allocation.
pub struct Arenas {
    homes: Homes,
    me: NodeId,
    zone: [Option<Arena>; IN_ZONE],
    /// Of the lower half: node 0 only.
    lower: [Option<Arena>; LOWER],
    /// A record of each that there is.
    records: KernelTable<Record>,
    recorded: u64,
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Record(ArenaRecord);

// SAFETY: integers; zero is no arena.
unsafe impl Zeroed for Record {}
const _: () = assert!(IN_ZONE + LOWER <= OWN_ARENAS);

impl Arenas {
    /// The arenas of node `me`. `homes`: with all nodes present.
    ///
    /// # Errors
    /// The kernel's, when it gives no address space for those that the run's own settings lead to.
    pub fn new(homes: &Homes, me: NodeId) -> sys::Result<Arenas> {
        let mut arenas = Arenas {
            homes: *homes,
            me,
            zone: [const { None }; IN_ZONE],
            lower: [const { None }; LOWER],
            records: KernelTable::new(OWN_ARENAS as u64)?,
            recorded: 0,
        };
        let defaults = homes.partition().defaults();
        for placement in [defaults.homes, Placement::Node(me)] {
            arenas
                .get(ArenaId::of(Attributes { homes: placement, ..defaults }))
                .map_or(Ok(()), |found| found.map(drop))?;
        }
        Ok(arenas)
    }

    /// Where the records are: they never move.
    pub fn records(&self) -> u64 {
        self.records.base()
    }

    /// Where the arena of that number is kept, if this node owns it.
    fn place(&mut self, arena: ArenaId) -> Option<&mut Option<Arena>> {
        match arena.zone() {
            None if self.me.index() == 0 => self.lower.get_mut(arena.index()),
            Some(zone) if zone == self.me.index() as u64 => self.zone.get_mut((arena.index() - LOWER) % IN_ZONE),
            _ => None,
        }
    }

    /// The arena of that number, if this node owns it and the run has room for it.
    ///
    /// # Errors
    /// The kernel's, when it gives no address space.
    pub fn get(&mut self, arena: ArenaId) -> Option<sys::Result<&mut Arena>> {
        let (base, bytes) = self.homes.arena_range(arena)?;
        if self.place(arena)?.is_none() {
            match Arena::new(base, bytes) {
                Ok(made) => {
                    self.records.set(self.recorded, Record(made.record()));
                    self.recorded += 1;
                    *self.place(arena)? = Some(made);
                }
                Err(e) => return Some(Err(e)),
            }
        }
        self.place(arena)?.as_mut().map(Ok)
    }

    /// Takes memory out of an arena of this node's, `sliced` pages or not. And the arena's limit. `by`: the place in the program that wants it.
    pub fn alloc(
        &mut self,
        arena: ArenaId,
        bytes: u64,
        by: u64,
        sliced: bool,
    ) -> Option<(Result<Chunk, ArenasFull>, u64)> {
        self.place(arena)?;
        let homes = self.homes;
        let full = |free_bytes, limit| ArenasFull { free_bytes, enough_gib: homes.enough_gib(arena, bytes, limit) };
        Some(match self.get(arena) {
            Some(Ok(arena)) => {
                let chunk = if sliced { arena.alloc_sliced(bytes, by) } else { arena.alloc(bytes, by) };
                (chunk.ok_or_else(|| full(arena.free_bytes(), arena.limit())), arena.limit())
            }
            // What cannot be kept account of cannot be handed out.
            Some(Err(_)) | None => (Err(full(0, 0)), 0),
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
pub const FREED_OK: u64 = 0;
pub const FREED_ALREADY: u64 = 1;
pub const FREED_FOREIGN: u64 = 2;

/// The bytes of an allocation, at least one block; more than any arena has where they are no number.
pub fn whole_blocks(attributes: Attributes, bytes: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(attributes.block.bytes()).unwrap_or(u64::MAX)
}

/// Beside the arena's number: its pages shall have their homes in slices.
pub const IN_SLICES: u64 = 1 << 32;

/// `args`: arena and [`IN_SLICES`], bytes, the place in the program that wants them. Answer: address (0: no room), `args`: bytes (without room: those that are free), recycled, the arena's limit.
pub fn on_alloc(arenas: &mut Arenas, links: &mut Links, from: NodeId, message: &Message) {
    let [arena, bytes, by] = message.args;
    let (arena, sliced) = (links.homes.arena(arena & !IN_SLICES), arena & IN_SLICES != 0);
    let Some((chunk, limit)) = arena.and_then(|arena| arenas.alloc(arena, bytes, by, sliced)) else {
        return links.count(Counter::MessagesRejected);
    };
    let reply = match chunk {
        Ok(chunk) => Message { addr: chunk.addr, args: [chunk.bytes, chunk.recycled.into(), limit], ..*message },
        Err(full) => Message { addr: 0, args: [full.free_bytes, 0, limit], ..*message },
    };
    links.post(from, Message { handler: id::ALLOCATED, ..reply });
}

/// Address: what to free. Answer: `args[0]`, see [`FREED_OK`] and its neighbours.
pub fn on_free(arenas: &mut Arenas, links: &mut Links, from: NodeId, message: &Message) {
    let freed = match arenas.free(message.addr) {
        Some(freed) => freed,
        // As in `on_limit_query`.
        None if links.homes.arena_of(message.addr).and_then(|arena| links.homes.owner_of(arena)) == Some(links.me) => {
            Err(FreeError::NotAllocated)
        }
        None => return links.count(Counter::MessagesRejected),
    };
    let code = match freed {
        Ok(_) => FREED_OK,
        Err(FreeError::AlreadyFree) => FREED_ALREADY,
        Err(FreeError::NotAllocated) => FREED_FOREIGN,
    };
    links.post(from, Message { handler: id::FREED, args: [code, 0, 0], ..*message });
}

/// `args[0]`: arena. Answer: `args[0]`: the first address of it that was never handed out.
pub fn on_limit_query(arenas: &mut Arenas, links: &mut Links, from: NodeId, message: &Message) {
    let arena = links.homes.arena(message.args[0]);
    let limit = match arena.and_then(|arena| arenas.limit(arena)) {
        Some(limit) => limit,
        // The zone of a node that was never created: this one stands in for it, and nothing is allocated there.
        None if arena.and_then(|arena| links.homes.owner_of(arena)) == Some(links.me) => 0,
        None => return links.count(Counter::MessagesRejected),
    };
    links.post(from, Message { handler: id::LIMIT, args: [limit, 0, 0], ..*message });
}
