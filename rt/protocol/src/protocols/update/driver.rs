//! What the readers of a home's blocks have, and the flush that pushes what is new.
//!
//! Input: steps at the home, flushes, pushes. Output: pushes, copies that are up to date; the blocks that a flush still has to wait for. **Invariant**: all
//! readers of a block have been sent the same bytes.

use crate::bugs::has_bug;
use crate::ids::{Block, Data, NodeSet};
use crate::port::{BlockSite, Port};
use crate::protocol::env::Env;
use crate::protocol::messages::{Incoming, reject};
use crate::protocols::stache::defer::{Deferred, WaitingEvent};
use crate::protocols::stache::directory::{DirState, Directory};
use crate::protocols::stache::driver::{Stache, StacheRules};
use crate::protocols::stache::vocabulary::{Actions, CacheEvent, CacheState, HomeEvent, Violation};
use crate::protocols::update::steps::{self, DROPPED};
use crate::storage::{Queue, Storage, Table, Zeroed};
use crate::tag::Tag;
use blizzard_contract::BLOCK_BYTES;

/// The protocol's state on one node.
pub type Update<M> = Stache<M, UpdatePushes<M>>;

/// Whether a block is in the list of those that have readers.
#[derive(Clone, Copy)]
struct Listed(bool);

// SAFETY: zero is false.
unsafe impl Zeroed for Listed {}

/// What update keeps besides stache's state: used for blocks whose home this node is.
pub struct UpdatePushes<M: Storage> {
    /// By minimum block: what its readers have.
    pushed: M::Table<Data>,
    listed: M::Table<Listed>,
    /// Addresses of the blocks that have readers, or had some at the last flush.
    list: Queue<u64, M>,
    /// Numbers of those that the last flush found on their way to another writer: the home may have stored since, and readers still have copies.
    leaving: Queue<u64, M>,
}

impl<M: Storage> StacheRules<M> for UpdatePushes<M> {
    fn new(blocks: u64) -> Result<UpdatePushes<M>, M::Error> {
        Ok(UpdatePushes {
            pushed: M::table(blocks)?,
            listed: M::table(blocks)?,
            list: Queue::new(),
            leaving: Queue::new(),
        })
    }

    #[inline(always)]
    fn home_step(state: DirState, local: Tag, event: HomeEvent) -> Result<(DirState, Tag, Actions), Violation> {
        steps::home_step(state, local, event)
    }

    #[inline(always)]
    fn cache_step(state: CacheState, event: CacheEvent) -> Result<(CacheState, Actions), Violation> {
        steps::cache_step(state, event)
    }

    /// A reader has got data: the others get the same, and that is what all have.
    fn stepped<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        (before, next): (DirState, DirState),
        _waiting: &Deferred<M::Table<WaitingEvent>>,
    ) -> Option<DirState> {
        let DirState::Shared(_) = next else { return None };
        let readers = match before {
            DirState::Shared(readers) if !has_bug!(env.port, ReaderHidesStores) => readers,
            _ => NodeSet::EMPTY,
        };
        self.push(env, site, readers);
        self.enlist(env, site);
        None
    }

    fn other_message<P: Port>(env: &mut Env<'_, M, P>, state: DirState, message: &Incoming<'_>) -> Option<DirState> {
        if message.kind == DROPPED {
            return Some(steps::without_reader(state, message.from));
        }
        reject(env.port);
        None
    }

    fn flush<P: Port>(&mut self, env: &mut Env<'_, M, P>, directory: &Directory<M>) {
        while self.leaving.pop().is_some() {}
        for _ in 0..self.list.len() {
            let Some(addr) = self.list.pop() else { return };
            let site = env.site(addr);
            let number = env.port.number(site.block);
            match directory.get(number) {
                Ok(DirState::Shared(readers)) => {
                    self.push(env, &site, readers);
                    if !has_bug!(env.port, FlushForgetsReaders) {
                        self.append(env, addr);
                    }
                    continue;
                }
                Ok(DirState::AwaitAcks { .. }) if self.leaving.push(number).is_err() => no_memory(env),
                _ => {}
            }
            self.listed.set(number, Listed(false));
        }
    }

    fn is_leaving(&self, directory: &Directory<M>, k: u64) -> Option<bool> {
        Some(matches!(directory.get(self.leaving.get(k)?), Ok(DirState::AwaitAcks { .. })))
    }

    fn pushed<P: Port>(env: &mut Env<'_, M, P>, site: &BlockSite, part: Block, data: &Data) {
        match env.tag(site.block) {
            Tag::ReadOnly => env.port.write(part, data),
            Tag::Invalid => env.send(site.home, site, DROPPED, false),
            Tag::Writable | Tag::Busy => reject(env.port),
        }
    }
}

impl<M: Storage> UpdatePushes<M> {
    /// Brings `readers` up to date.
    fn push<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, readers: NodeSet) {
        let first = env.port.number(site.block);
        for part in 0..site.bytes / BLOCK_BYTES {
            let block = Block::of(site.block.addr() + part * BLOCK_BYTES);
            let data = env.port.read(block);
            if data != self.pushed.get(first + part) {
                self.pushed.set(first + part, data);
                for to in readers.iter() {
                    env.port.push(to, block, &data);
                }
            }
        }
    }

    fn enlist<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite) {
        let number = env.port.number(site.block);
        if !self.listed.get(number).0 {
            self.listed.set(number, Listed(true));
            self.append(env, site.block.addr());
        }
    }

    fn append<P: Port>(&mut self, env: &mut Env<'_, M, P>, addr: u64) {
        if self.list.push(addr).is_err() {
            no_memory(env);
        }
    }
}

fn no_memory<M: Storage, P: Port>(env: &mut Env<'_, M, P>) {
    env.port.fail(format_args!("no memory for the list of blocks with readers"));
}
