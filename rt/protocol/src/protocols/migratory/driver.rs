//! What a home has noted of its blocks, and which misses it therefore answers as if they stored.
//!
//! Input: events at the home, before they are stepped. Output: what is stepped instead; stache's steps do the rest.

use crate::bugs::has_bug;
use crate::ids::{Data, NodeId};
use crate::port::{BlockSite, Port};
use crate::protocol::env::Env;
use crate::protocols::stache::defer::{Deferred, WaitingEvent};
use crate::protocols::stache::directory::DirState;
use crate::protocols::stache::driver::{Stache, StacheRules};
use crate::protocols::stache::steps;
use crate::protocols::stache::vocabulary::{Actions, CacheEvent, CacheState, HomeEvent, Violation};
use crate::storage::{Storage, Table, Zeroed};
use crate::tag::Tag;

/// The protocol's state on one node.
pub type Migratory<M> = Stache<M, Moves<M>>;

/// What a home has noted of a block. Zero: it is migratory, and nobody has written.
#[derive(Clone, Copy)]
struct Noted {
    /// 0: it moves when it is read.
    stays: u16,
    /// 0, or the number of the node that wrote last + 1.
    writer: u16,
}

// SAFETY: integers.
unsafe impl Zeroed for Noted {}

impl Noted {
    fn is_writer(self, node: NodeId) -> bool {
        usize::from(self.writer) == node.index() + 1
    }

    fn written_by(self, node: NodeId) -> Noted {
        Noted { writer: node.index() as u16 + 1, ..self }
    }
}

/// What migratory keeps besides stache's state: used for blocks whose home this node is.
pub struct Moves<M: Storage> {
    noted: M::Table<Noted>,
}

impl<M: Storage> StacheRules<M> for Moves<M> {
    fn new(blocks: u64) -> Result<Moves<M>, M::Error> {
        Ok(Moves { noted: M::table(blocks)? })
    }

    fn cache_step(state: CacheState, event: CacheEvent) -> Result<(CacheState, Actions), Violation> {
        match (state, event) {
            (CacheState::ReadPending, CacheEvent::DataWritable) => steps::cache_step(CacheState::WritePending, event),
            _ => steps::cache_step(state, event),
        }
    }

    fn home_event<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        (state, event): (DirState, HomeEvent),
        data: Option<&Data>,
    ) -> HomeEvent {
        let number = env.port.number(site.block);
        let noted = self.noted.get(number);
        match (state, event) {
            (DirState::Idle | DirState::Exclusive(_), HomeEvent::Read(node)) if noted.stays == 0 => {
                return HomeEvent::Write(node);
            }
            (DirState::Exclusive(_), HomeEvent::LocalLoad) if noted.stays == 0 => return HomeEvent::LocalStore,
            (_, HomeEvent::WriteBack(owner) | HomeEvent::Downgraded(owner)) => {
                let next = match env.brings_news(site, data) {
                    true => noted.written_by(owner),
                    false => Noted { stays: 1, ..noted },
                };
                self.noted.set(number, next);
            }
            (DirState::Shared(sharers), HomeEvent::Upgrade(_) | HomeEvent::LocalStore) => {
                let node = if let HomeEvent::Upgrade(node) = event { node } else { env.port.me() };
                let others = sharers.without(node);
                let moves = !noted.is_writer(node) && others.iter().all(|other| noted.is_writer(other));
                let stays = if moves && noted.writer != 0 { 0 } else { noted.stays };
                self.noted.set(number, Noted { stays, ..noted }.written_by(node));
            }
            _ => {}
        }
        event
    }

    fn stepped<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        states: (DirState, DirState),
        _waiting: &Deferred<M::Table<WaitingEvent>>,
    ) -> Option<DirState> {
        if has_bug!(env.port, MovedCopyStays) && matches!(states, (DirState::Idle, DirState::Exclusive(_))) {
            env.set_tag(site, Tag::ReadOnly);
        }
        None
    }
}
