//! Stache on one node: its state, and the performance of its actions.
//!
//! Input: misses and messages from the engine. Output: tags, data and messages.
//!
//! **Rules and how they are kept.**
//! * *First come, first served at the home.* See [`crate::protocols::stache::defer`].
//! * *Untouched pages.* An Idle entry means that the home's tag is Writable, but tags start Invalid everywhere. See [`first_touch`].

use crate::bugs::has_bug;
use crate::ids::{Block, Data, NodeId};
use crate::port::{BlockSite, Port};
use crate::protocol::env::Env;
use crate::protocol::messages::{Incoming, reject};
use crate::protocol::pins::Pins;
use crate::protocol::seam::{PREFETCHES, Protocol, first_touch};
use crate::protocols::stache::defer::{Deferred, WaitingEvent};
use crate::protocols::stache::directory::{DirState, Directory};
use crate::protocols::stache::steps;
use crate::protocols::stache::vocabulary::{
    Action, Actions, CacheEvent, CacheState, HomeEvent, MAX_ACTIONS, Msg, Violation,
};
use crate::storage::Storage;
use crate::tag::Tag;
use blizzard_contract::Counter;

const OUTSTANDING: usize = PREFETCHES + 1;

/// Each of at most four elements, without a loop.
macro_rules! for_each_of_four {
    ($list:expr, |$one:ident| $run:expr) => {
        for_each_of_four!(@ $list, $one, $run, 0 1 2 3)
    };
    (@ $list:expr, $one:ident, $run:expr, $($at:literal)*) => {
        $(if let Some(&$one) = $list.get($at) {
            $run;
        })*
    };
}

/// What protocols may do otherwise that are stache in all else. Stache itself: [`Invalidate`].
pub trait StacheRules<M: Storage>: Sized {
    /// Whether homes send copies that nobody has asked for. They can cross a request, which they answer ([`StacheRules::is_answered`]).
    const SENDS_UNASKED: bool = false;

    /// For so many minimum blocks.
    ///
    /// # Errors
    /// There is no memory.
    fn new(blocks: u64) -> Result<Self, M::Error>;

    /// At the home: an event is about to be stepped in that state, if it is possible there. What is stepped instead.
    #[inline(always)]
    fn home_event<P: Port>(
        &mut self,
        _env: &mut Env<'_, M, P>,
        _site: &BlockSite,
        (_state, event): (DirState, HomeEvent),
        _data: Option<&Data>,
    ) -> HomeEvent {
        event
    }

    /// [`steps::home_step`].
    #[inline(always)]
    fn home_step(state: DirState, local: Tag, event: HomeEvent) -> Result<(DirState, Tag, Actions), Violation> {
        steps::home_step(state, local, event)
    }

    /// [`steps::cache_step`].
    #[inline(always)]
    fn cache_step(state: CacheState, event: CacheEvent) -> Result<(CacheState, Actions), Violation> {
        steps::cache_step(state, event)
    }

    /// At the home: the step of a message has led from one state to another one, or the same, and its actions have been performed. `waiting`: the requests that
    /// have found their blocks busy. The state that the block has then, if it is another one.
    #[inline(always)]
    fn stepped<P: Port>(
        &mut self,
        _env: &mut Env<'_, M, P>,
        _site: &BlockSite,
        _states: (DirState, DirState),
        _waiting: &Deferred<M::Table<WaitingEvent>>,
    ) -> Option<DirState> {
        None
    }

    /// At the home, where [`StacheRules::SENDS_UNASKED`]: whether a request that has just arrived has been answered by what was sent unasked.
    fn is_answered(_port: &impl Port, _state: DirState, _event: HomeEvent) -> bool {
        false
    }

    /// A message that is not stache's, at a node that is not the home: the event that it is.
    fn cache_event<P: Port>(env: &mut Env<'_, M, P>, _site: &BlockSite, _message: &Incoming<'_>) -> Option<CacheEvent> {
        reject(env.port);
        None
    }

    /// A message that is not stache's. At the home: the block's next state.
    fn other_message<P: Port>(env: &mut Env<'_, M, P>, _state: DirState, _message: &Incoming<'_>) -> Option<DirState> {
        reject(env.port);
        None
    }

    /// [`Protocol::flush`].
    fn flush<P: Port>(&mut self, _env: &mut Env<'_, M, P>, _directory: &Directory<M>) {}

    /// [`Protocol::is_leaving`].
    fn is_leaving(&self, _directory: &Directory<M>, _k: u64) -> Option<bool> {
        None
    }

    /// [`Protocol::pushed`]; the block has no outstanding request.
    fn pushed<P: Port>(env: &mut Env<'_, M, P>, _site: &BlockSite, _part: Block, _data: &Data) {
        reject(env.port);
    }
}

/// The rules of stache.
pub struct Invalidate;

impl<M: Storage> StacheRules<M> for Invalidate {
    fn new(_blocks: u64) -> Result<Invalidate, M::Error> {
        Ok(Invalidate)
    }
}

/// Stache's state on one node.
pub struct Stache<M: Storage, R = Invalidate> {
    /// One entry per block of the segment; used for those whose home this node is.
    pub(super) directory: Directory<M>,
    /// The outstanding requests, the first so many: the miss that the node waits for, if the block has another home, and requests ahead. In any order.
    misses: [(Block, CacheState); OUTSTANDING],
    outstanding: usize,
    /// Requests that found their block busy.
    deferred: Deferred<M::Table<WaitingEvent>>,
    rules: R,
}

impl<M: Storage, R: StacheRules<M>> Protocol<M> for Stache<M, R> {
    fn new(blocks: u64, nodes: u32) -> Result<Self, M::Error> {
        Ok(Stache {
            rules: R::new(blocks)?,
            directory: Directory::new(blocks)?,
            misses: [(Block::of(0), CacheState::Invalid); OUTSTANDING],
            outstanding: 0,
            deferred: Deferred::new(M::table(u64::from(nodes) * OUTSTANDING as u64)?),
        })
    }

    #[inline(always)]
    fn miss<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, store: bool) {
        if site.home == env.port.me() {
            self.home_event(env, site, if store { HomeEvent::LocalStore } else { HomeEvent::LocalLoad }, None);
        } else {
            self.cache_event(env, site, if store { CacheEvent::Store } else { CacheEvent::Load }, None);
        }
    }

    #[inline(always)]
    fn message<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, message: &Incoming<'_>) {
        let Some(msg) = Msg::from_byte(message.kind) else { return self.other_message(env, site, message) };
        if msg == Msg::Invalidate {
            env.port.count(Counter::InvalidationsReceived);
        }
        #[cfg(feature = "planted")]
        if self.planted_message(env, site, msg, message.from) {
            return;
        }
        if let Some(event) = HomeEvent::from_msg(msg, message.from) {
            self.home_event(env, site, event, message.data);
        } else if let Some(event) = CacheEvent::from_msg(msg) {
            self.cache_event(env, site, event, message.data);
        }
    }

    #[inline]
    fn is_at_rest(&self) -> bool {
        self.deferred.is_empty()
    }

    /// Steps deferred events of all blocks that are neither busy nor pinned, oldest first.
    fn resume<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
        while let Some(block) = self.next_replayable(env) {
            let Some(event) = self.deferred.pop(block.addr()) else { return };
            let site = env.site(block.addr());
            self.home_step(env, &site, event, None);
        }
    }

    fn has_put_off_work(&self, pins: &Pins) -> bool {
        self.deferred.blocks().any(|addr| pins.contains(Block::of(addr)))
    }

    fn evict<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite) {
        self.cache_event(env, site, CacheEvent::Evict, None);
    }

    fn is_outstanding(&self, block: Block) -> bool {
        self.outstanding(block).is_some()
    }

    fn has_outstanding(&self) -> bool {
        self.outstanding != 0
    }

    /// A block of this home is, when it is with other nodes and nothing is under way about it.
    fn is_worth_asking(&self, port: &impl Port, site: &BlockSite) -> bool {
        if site.home != port.me() {
            return true;
        }
        let state = self.directory.get(port.number(site.block));
        state.is_ok_and(|state| state != DirState::Idle && !state.is_busy())
            && !self.deferred.is_waiting(site.block.addr())
    }

    /// The last place is the next miss's.
    fn may_ask(&self) -> bool {
        self.outstanding < PREFETCHES
    }

    fn ask<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, store: bool) {
        if site.home == env.port.me() && !has_bug!(env.port, OwnAheadIsForgotten) {
            // Noted as another home's would be, until the step that serves it.
            let pending = if store { CacheState::WritePending } else { CacheState::ReadPending };
            if !self.note(site.block, pending) {
                return;
            }
        }
        self.miss(env, site, store);
    }

    fn joins(&self, block: Block) -> bool {
        self.outstanding(block).is_some()
    }

    fn is_unshared(&self, number: u64) -> bool {
        self.directory.is_idle(number)
    }

    fn begin_away<P: Port>(&mut self, env: &mut Env<'_, M, P>, number: u64, holder: NodeId) {
        self.set_home_state(env, number, DirState::Exclusive(holder));
    }

    #[inline]
    fn flush<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
        self.rules.flush(env, &self.directory);
    }

    fn is_leaving(&self, k: u64) -> Option<bool> {
        self.rules.is_leaving(&self.directory, k)
    }

    fn pushed<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, part: Block, data: &Data) {
        // What is asked for comes, and is newer.
        if self.outstanding == 0 || self.outstanding(site.block).is_none() {
            R::pushed(env, site, part, data);
        }
    }
}

impl<M: Storage, R: StacheRules<M>> Stache<M, R> {
    #[cold]
    fn other_message<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, message: &Incoming<'_>) {
        if site.home != env.port.me() {
            if let Some(event) = R::cache_event(env, site, message) {
                self.cache_event(env, site, event, message.data);
            }
            return;
        }
        let number = env.port.number(site.block);
        let state = self.home_state(env, site, number);
        if let Some(next) = R::other_message(env, state, message) {
            self.set_home_state(env, number, next);
        }
    }

    fn place(&self, block: Block) -> Option<usize> {
        self.misses[..self.outstanding].iter().position(|&(missing, _)| missing == block)
    }

    /// The state of a block with an outstanding request.
    fn outstanding(&self, block: Block) -> Option<CacheState> {
        self.place(block).map(|at| self.misses[at].1)
    }

    /// Notes the state after a step that began or ended with an outstanding request; false when there are too many.
    fn note(&mut self, block: Block, next: CacheState) -> bool {
        match (self.place(block), next.is_pending()) {
            (Some(at), true) => self.misses[at].1 = next,
            (Some(at), false) => {
                self.outstanding -= 1;
                self.misses[at] = self.misses[self.outstanding];
            }
            (None, true) => {
                let Some(free) = self.misses.get_mut(self.outstanding) else { return false };
                *free = (block, next);
                self.outstanding += 1;
            }
            (None, false) => {}
        }
        true
    }

    /// Steps an event at the home, or queues it behind those that wait already.
    #[inline(always)]
    pub(super) fn home_event<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        event: HomeEvent,
        data: Option<&Data>,
    ) {
        if R::SENDS_UNASKED && R::is_answered(env.port, self.home_state(env, site, env.port.number(site.block)), event)
        {
            return;
        }
        if event.is_request() && self.deferred.is_waiting(site.block.addr()) {
            self.defer(env, site, event);
        } else if self.home_step(env, site, event, data) && !self.deferred.is_empty() {
            self.resume(env);
        }
    }

    fn defer<P: Port>(&mut self, env: &Env<'_, M, P>, site: &BlockSite, event: HomeEvent) {
        if self.deferred.push(site.block.addr(), event).is_err() {
            env.port.fail(format_args!("protocol error: more requests wait at this home than there are nodes"));
        }
    }

    #[inline(always)]
    fn home_state<P: Port>(&self, env: &Env<'_, M, P>, site: &BlockSite, number: u64) -> DirState {
        match self.directory.get(number) {
            Ok(state) => state,
            Err(entry) => violation(env.port, site, &Violation::CorruptEntry(entry)),
        }
    }

    fn set_home_state<P: Port>(&mut self, env: &Env<'_, M, P>, number: u64, state: DirState) {
        if let Err(e) = self.directory.set(number, state) {
            env.port.fail(format_args!("no memory for the directory: {e}"));
        }
    }

    /// Steps an event; true when the block's deferred events must be stepped next.
    fn home_step<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        event: HomeEvent,
        data: Option<&Data>,
    ) -> bool {
        let number = env.port.number(site.block);
        let mut state = self.home_state(env, site, number);
        if state == DirState::Idle && env.port.tag(site.block) == Some(Tag::Invalid) {
            first_touch(self, env, site);
            state = self.home_state(env, site, number);
        }
        let event = self.rules.home_event(env, site, (state, event), data);
        let tag = env.tag(site.block);
        #[cfg(feature = "planted")]
        let tag = Self::planted_home_tag(env.port, state, tag);
        macro_rules! step {
            ($state:expr, $event:expr) => {
                self.home_step_at::<true, P>(env, site, number, ($state, tag, $event), data)
            };
        }
        // A copy of the step for each part of a miss: where state and event are known, so is what they lead to.
        match (state, event) {
            (DirState::Idle, HomeEvent::Read(from)) => step!(DirState::Idle, HomeEvent::Read(from)),
            (DirState::Idle, HomeEvent::Write(from)) => step!(DirState::Idle, HomeEvent::Write(from)),
            (DirState::Shared(set), HomeEvent::Read(from)) => step!(DirState::Shared(set), HomeEvent::Read(from)),
            (DirState::Shared(set), HomeEvent::Upgrade(from)) => step!(DirState::Shared(set), HomeEvent::Upgrade(from)),
            _ => self.home_step_of_any(env, site, number, (state, tag, event), data),
        }
    }

    #[inline(never)]
    fn home_step_of_any<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        number: u64,
        step: (DirState, Tag, HomeEvent),
        data: Option<&Data>,
    ) -> bool {
        self.home_step_at::<false, P>(env, site, number, step, data)
    }

    #[inline(always)]
    fn home_step_at<const UNROLLED: bool, P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        number: u64,
        (state, tag, event): (DirState, Tag, HomeEvent),
        data: Option<&Data>,
    ) -> bool {
        match R::home_step(state, tag, event) {
            Ok((_, _, actions)) if actions.is_defer() => {
                self.defer(env, site, event);
                false
            }
            Ok((next, _, actions)) => {
                if next != state {
                    self.set_home_state(env, number, next);
                }
                let replay = self.perform::<UNROLLED, P>(env, site, true, &actions, data);
                if !matches!(event, HomeEvent::LocalLoad | HomeEvent::LocalStore)
                    && let Some(then) = self.rules.stepped(env, site, (state, next), &self.deferred)
                {
                    self.set_home_state(env, number, then);
                }
                replay
            }
            Err(why) => violation(env.port, site, &why),
        }
    }

    /// Steps an event at a node that is not the home.
    fn cache_event<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        event: CacheEvent,
        data: Option<&Data>,
    ) {
        let state = match self.outstanding(site.block) {
            Some(state) => Some(state),
            None => CacheState::from_tag(env.tag(site.block)),
        };
        let Some(state) = state else {
            env.port.fail(format_args!("protocol error: block {:#x} is Busy without a miss", site.block.addr()))
        };
        #[cfg(feature = "planted")]
        let state = Self::planted_cache_state(env.port, site.block, state, event);
        macro_rules! step {
            ($state:expr, $event:expr) => {
                self.cache_step_at::<true, P>(env, site, $state, $event, data)
            };
        }
        // As at the home.
        match (state, event) {
            (CacheState::Invalid, CacheEvent::Load) => step!(CacheState::Invalid, CacheEvent::Load),
            (CacheState::Invalid, CacheEvent::Store) => step!(CacheState::Invalid, CacheEvent::Store),
            (CacheState::ReadOnly, CacheEvent::Store) => step!(CacheState::ReadOnly, CacheEvent::Store),
            (CacheState::ReadPending, CacheEvent::DataReadOnly) => {
                step!(CacheState::ReadPending, CacheEvent::DataReadOnly)
            }
            (CacheState::WritePending, CacheEvent::DataWritable) => {
                step!(CacheState::WritePending, CacheEvent::DataWritable)
            }
            (CacheState::UpgradePending, CacheEvent::UpgradeAck) => {
                step!(CacheState::UpgradePending, CacheEvent::UpgradeAck)
            }
            _ => self.cache_step_of_any(env, site, state, event, data),
        }
    }

    #[inline(never)]
    fn cache_step_of_any<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        state: CacheState,
        event: CacheEvent,
        data: Option<&Data>,
    ) {
        self.cache_step_at::<false, P>(env, site, state, event, data);
    }

    #[inline(always)]
    fn cache_step_at<const UNROLLED: bool, P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        state: CacheState,
        event: CacheEvent,
        data: Option<&Data>,
    ) {
        match R::cache_step(state, event) {
            Ok((next, actions)) => {
                if (state.is_pending() || next.is_pending()) && !self.note(site.block, next) {
                    env.port.fail(format_args!("protocol error: too many outstanding misses"));
                }
                self.perform::<UNROLLED, P>(env, site, false, &actions, data);
            }
            Err(why) => violation(env.port, site, &why),
        }
    }

    /// Performs a step's actions in order; true when deferred events must be stepped next. `UNROLLED`: for actions that the compiler knows.
    #[inline(always)]
    fn perform<const UNROLLED: bool, P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        at_home: bool,
        actions: &Actions,
        data: Option<&Data>,
    ) -> bool {
        let list = actions.as_slice();
        let mut replay = false;
        if UNROLLED {
            const { assert!(MAX_ACTIONS == 4) }
            for_each_of_four!(list, |action| replay |= self.act(env, site, at_home, action, actions, data));
        } else {
            for &action in list {
                replay |= self.act(env, site, at_home, action, actions, data);
            }
        }
        replay
    }

    /// Performs one action of a step; true when deferred events must be stepped next.
    #[inline(always)]
    fn act<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        at_home: bool,
        action: Action,
        #[cfg_attr(not(feature = "planted"), expect(unused_variables))] actions: &Actions,
        data: Option<&Data>,
    ) -> bool {
        #[cfg(feature = "planted")]
        if self.planted_action(env, site, at_home, action, actions, data) {
            return false;
        }
        match action {
            Action::CopyIn => env.copy_in(site, data),
            Action::SetTag(tag) => env.set_tag(site, tag),
            Action::Send(to, msg) => send(env, to, site, msg),
            Action::SendHome(msg) => send(env, site.home, site, msg),
            Action::Invalidate(nodes) => {
                for to in nodes.iter() {
                    send(env, to, site, Msg::Invalidate);
                }
            }
            Action::Resume => {
                env.grant(site.block);
                if at_home {
                    // It may have been asked for ahead.
                    self.note(site.block, CacheState::Writable);
                }
            }
            Action::Replay => return true,
            Action::Defer => {}
        }
        false
    }

    fn next_replayable<P: Port>(&self, env: &Env<'_, M, P>) -> Option<Block> {
        self.deferred.blocks().map(Block::of).find(|&block| {
            let state = self.directory.get(env.port.number(block));
            !env.is_pinned(block) && state.is_ok_and(|state| !state.is_busy())
        })
    }
}

#[inline]
pub(super) fn send<M: Storage, P: Port>(env: &mut Env<'_, M, P>, to: NodeId, site: &BlockSite, msg: Msg) {
    if msg == Msg::WriteBack {
        env.port.count(Counter::WriteBacks);
    }
    env.send(to, site, msg.byte(), msg.carries_data());
}

#[cold]
fn violation(port: &impl Port, site: &BlockSite, violation: &Violation) -> ! {
    port.fail(format_args!("protocol error at block {:#x}: {}: {violation:?}", site.block.addr(), violation.what()))
}
