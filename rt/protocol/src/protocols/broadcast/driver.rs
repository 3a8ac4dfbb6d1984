//! Who had copies before a store, and the copies that they get behind it.
//!
//! Input: events at the home before and after their steps, Copies elsewhere. Output: Copies, and states in which their receivers are sharers; all else is stache's.

use crate::bugs::has_bug;
use crate::ids::{Data, NodeSet};
use crate::port::{BlockSite, Port};
use crate::protocol::env::Env;
use crate::protocol::messages::{Incoming, reject};
use crate::protocols::broadcast::steps::{self, COPY};
use crate::protocols::stache::defer::{Deferred, WaitingEvent};
use crate::protocols::stache::directory::{DirState, Directory};
use crate::protocols::stache::driver::{Stache, StacheRules};
use crate::protocols::stache::vocabulary::{Actions, CacheEvent, CacheState, HomeEvent, Msg, Violation};
use crate::storage::Storage;
use crate::tag::Tag;
use blizzard_contract::Counter;

/// The protocol's state on one node.
pub type Broadcast<M> = Stache<M, BroadcastCopies<M>>;

/// What broadcast keeps besides stache's state: used for blocks whose home this node is.
pub struct BroadcastCopies<M: Storage> {
    /// Shared with those that are remembered, or Idle.
    remembered: Directory<M>,
}

impl<M: Storage> StacheRules<M> for BroadcastCopies<M> {
    const SENDS_UNASKED: bool = true;

    fn new(blocks: u64) -> Result<BroadcastCopies<M>, M::Error> {
        Ok(BroadcastCopies { remembered: Directory::new(blocks)? })
    }

    #[inline(always)]
    fn home_step(state: DirState, local: Tag, event: HomeEvent) -> Result<(DirState, Tag, Actions), Violation> {
        steps::home_step(state, local, event)
    }

    #[inline(always)]
    fn cache_step(state: CacheState, event: CacheEvent) -> Result<(CacheState, Actions), Violation> {
        steps::cache_step(state, event)
    }

    fn home_event<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        (state, event): (DirState, HomeEvent),
        _data: Option<&Data>,
    ) -> HomeEvent {
        if let DirState::Shared(sharers) = state {
            match event {
                HomeEvent::LocalStore => self.remember(env, site, sharers),
                HomeEvent::Write(node) | HomeEvent::Upgrade(node) => self.remember(env, site, sharers.without(node)),
                _ => {}
            }
        }
        event
    }

    fn stepped<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        states: (DirState, DirState),
        waiting: &Deferred<M::Table<WaitingEvent>>,
    ) -> Option<DirState> {
        let (sharers, owner) = match states {
            (DirState::Idle, DirState::Shared(sharers)) => (sharers, None),
            (DirState::RecallRead { owner, .. }, DirState::Shared(sharers)) => (sharers, Some(owner)),
            (DirState::Exclusive(owner), DirState::Idle) => (NodeSet::EMPTY, Some(owner)),
            _ => return None,
        };
        let number = env.port.number(site.block);
        let Ok(DirState::Shared(remembered)) = self.remembered.get(number) else { return None };
        self.remember(env, site, NodeSet::EMPTY);
        let may_have = |node| {
            Some(node) != owner
                && (!waiting.is_waiting_for(site.block.addr(), node) || has_bug!(env.port, CopyPassesRequest))
        };
        let new: NodeSet = remembered.difference(sharers).iter().filter(|&node| may_have(node)).collect();
        if new.is_empty() {
            return None;
        }
        if sharers.is_empty() {
            env.set_tag(site, Tag::ReadOnly);
        }
        for to in new.iter() {
            env.send(to, site, COPY, true);
            env.port.count(Counter::BlocksPushed);
        }
        (!has_bug!(env.port, CopyIsForgotten)).then_some(DirState::Shared(sharers.union(new)))
    }

    fn is_answered(port: &impl Port, state: DirState, event: HomeEvent) -> bool {
        steps::is_answered(state, event) && !has_bug!(port, AnsweredReadIsServed)
    }

    fn cache_event<P: Port>(env: &mut Env<'_, M, P>, site: &BlockSite, message: &Incoming<'_>) -> Option<CacheEvent> {
        if message.kind != COPY {
            reject(env.port);
            return None;
        }
        if !message.keeps_page {
            env.send(site.home, site, Msg::InvalidateAck.byte(), false);
            return None;
        }
        Some(CacheEvent::DataReadOnly)
    }
}

impl<M: Storage> BroadcastCopies<M> {
    fn remember<P: Port>(&mut self, env: &Env<'_, M, P>, site: &BlockSite, nodes: NodeSet) {
        let state = if nodes.is_empty() { DirState::Idle } else { DirState::Shared(nodes) };
        if let Err(e) = self.remembered.set(env.port.number(site.block), state) {
            env.port.fail(format_args!("no memory for the readers of a block: {e}"));
        }
    }
}
