//! The driver of [`protocol::stache`](crate::protocol::stache): its state on this node, and the performance of its actions.
//!
//! Input: misses and messages, from [`super`], which also states the boundary. Output: tags, data and messages.
//!
//! **Rules and how they are kept.**
//! * *First come, first served at the home.* See [`crate::protocol::defer`].
//! * *Untouched pages.* Tags start Invalid on every node, the home included, while an Idle directory entry means that the home's tag is
//!   Writable. An Invalid tag beside an Idle entry therefore means "never used": the home raises the tags of all such
//!   blocks of the page at the first event, without messages. Where node 0 had the page before this node was created
//!   (see [`crate::forks`]), it makes the entries Exclusive at node 0 instead.

#[cfg(any(feature = "planted", test))]
mod planted;

use crate::homes::PAGE_BYTES;
use crate::instruments::{self, Step};
use crate::node::Node;
use crate::protocol::defer::Deferred;
use crate::protocol::{
    Action, Actions, CacheEvent, CacheState, DirState, Directory, HomeEvent, MAX_ACTIONS, Msg, NodeId, Tag, Violation,
    stache,
};
use crate::sys;
use crate::tags::{BLOCK_WORDS, Block};
use crate::transport::Message;
use blizzard_contract::{self as contract, Counter};

/// Requests that a node may have outstanding besides the miss that it waits for.
pub const PREFETCHES: usize = contract::LOOK_AHEAD as usize;
const OUTSTANDING: usize = PREFETCHES + 1;
/// So many requests can wait at one home.
const MAX_DEFERRED: usize = contract::MAX_NODES * OUTSTANDING;

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

/// Stache's state on one node.
pub struct Stache {
    /// One entry per block of the segment; used for those whose home this node is.
    directory: Directory,
    /// The outstanding requests, the first so many: the miss that the node waits for, if the block has another home, and prefetches. In any order.
    misses: [(Block, CacheState); OUTSTANDING],
    outstanding: usize,
    /// Requests that found their block busy.
    deferred: Deferred<MAX_DEFERRED>,
}

impl Stache {
    /// The state of a node that has used nothing yet.
    pub fn new(segment_blocks: u64) -> sys::Result<Stache> {
        Ok(Stache {
            directory: Directory::new(segment_blocks)?,
            misses: [(Block::of(0), CacheState::Invalid); OUTSTANDING],
            outstanding: 0,
            deferred: Deferred::new(),
        })
    }
}

impl Stache {
    /// Whether no request waits here.
    #[inline]
    pub(super) fn is_at_rest(&self) -> bool {
        self.deferred.is_empty()
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

    /// A block of this home is served that may have been asked for ahead.
    fn note_served(&mut self, block: Block) {
        self.note(block, CacheState::Writable);
    }
}

impl Node {
    /// Whether a request for the block is outstanding.
    pub(super) fn stache_is_outstanding(&self, block: Block) -> bool {
        self.coherence.stache.outstanding(block).is_some()
    }

    /// Whether any request is outstanding.
    pub(super) fn stache_has_outstanding(&self) -> bool {
        self.coherence.stache.outstanding != 0
    }

    /// Whether one more request may be sent without waiting: the last place is the next miss's.
    pub(super) fn stache_may_prefetch(&self) -> bool {
        self.coherence.stache.outstanding < PREFETCHES
    }

    /// Gives a copy back.
    pub(super) fn stache_evict(&mut self, block: Block) {
        self.cache_event(block, CacheEvent::Evict, None);
    }

    /// A validated protocol message, or one that was put aside.
    #[inline]
    pub(super) fn stache_message(&mut self, message: &Message, block: Block) {
        let (Some(msg), Some(from)) = (Msg::from_byte(message.handler as u8), NodeId::new(message.source.into()))
        else {
            return self.count(Counter::MessagesRejected);
        };
        if msg == Msg::Invalidate {
            self.count(Counter::InvalidationsReceived);
        }
        #[cfg(any(feature = "planted", test))]
        if self.planted_message(block, msg, from) {
            return;
        }
        if let Some(event) = HomeEvent::from_msg(msg, from) {
            self.home_event(block, event, Some(&message.data));
        } else if let Some(event) = CacheEvent::from_msg(msg) {
            self.cache_event(block, event, Some(&message.data));
        }
    }

    /// Whether a block of this home is with other nodes, and nothing is under way about it.
    pub(super) fn stache_is_away(&self, block: Block) -> bool {
        let state = self.coherence.stache.directory.get(self.space.number(block));
        state.is_ok_and(|state| state != DirState::Idle && !state.is_busy())
            && !self.coherence.stache.deferred.is_waiting(block.addr())
    }

    /// Asks for a block that nobody waits for yet, of this home or another one.
    pub(super) fn stache_prefetch(&mut self, block: Block, store: bool, own: bool) {
        if own && !has_bug!(self, OwnAheadIsForgotten) {
            // Noted as another home's would be, until the step that serves it.
            let pending = if store { CacheState::WritePending } else { CacheState::ReadPending };
            if !self.coherence.stache.note(block, pending) {
                return;
            }
        }
        self.miss_at(own, block, store);
    }

    /// The access in progress misses.
    pub(super) fn stache_miss(&mut self, block: Block, store: bool) {
        self.miss_at(self.home_of(block) == self.me, block, store);
    }

    fn miss_at(&mut self, own: bool, block: Block, store: bool) {
        if own {
            self.home_event(block, if store { HomeEvent::LocalStore } else { HomeEvent::LocalLoad }, None);
        } else {
            self.cache_event(block, if store { CacheEvent::Store } else { CacheEvent::Load }, None);
        }
    }

    /// Steps an event at the home, or queues it behind those that wait already.
    fn home_event(&mut self, block: Block, event: HomeEvent, data: Option<&[u64; BLOCK_WORDS]>) {
        if event.is_request() && self.coherence.stache.deferred.is_waiting(block.addr()) {
            self.defer(block, event);
        } else if self.home_step(block, event, data) {
            self.stache_replay();
        }
    }

    fn defer(&mut self, block: Block, event: HomeEvent) {
        if self.coherence.stache.deferred.push(block.addr(), event).is_err() {
            self.fail(format_args!("protocol error: more requests wait at this home than there are nodes"));
        }
    }

    fn home_state(&self, block: Block, number: u64) -> DirState {
        match self.coherence.stache.directory.get(number) {
            Ok(state) => state,
            Err(entry) => self.violation(block, &Violation::CorruptEntry(entry)),
        }
    }

    fn set_home_state(&mut self, number: u64, state: DirState) {
        if let Err(e) = self.coherence.stache.directory.set(number, state) {
            self.fail(format_args!("no memory for the directory: {e}"));
        }
    }

    /// Steps an event; true when the block's deferred events must be stepped next.
    fn home_step(&mut self, block: Block, event: HomeEvent, data: Option<&[u64; BLOCK_WORDS]>) -> bool {
        let number = self.space.number(block);
        let mut state = self.home_state(block, number);
        if state == DirState::Idle && self.space.tag(block) == Some(Tag::Invalid) {
            self.first_touch(block);
            state = self.home_state(block, number);
        }
        let tag = self.tag_of(block);
        #[cfg(any(feature = "planted", test))]
        let tag = self.planted_tag(state, tag);
        macro_rules! step {
            ($state:expr, $event:expr) => {
                self.home_step_at::<true>(block, number, ($state, tag, $event), data)
            };
        }
        // A copy of the step for each part of a miss: where state and event are known, so is what they lead to.
        match (state, event) {
            (DirState::Idle, HomeEvent::Read(from)) => step!(DirState::Idle, HomeEvent::Read(from)),
            (DirState::Idle, HomeEvent::Write(from)) => step!(DirState::Idle, HomeEvent::Write(from)),
            (DirState::Shared(set), HomeEvent::Read(from)) => step!(DirState::Shared(set), HomeEvent::Read(from)),
            (DirState::Shared(set), HomeEvent::Upgrade(from)) => step!(DirState::Shared(set), HomeEvent::Upgrade(from)),
            _ => self.home_step_of_any(block, number, (state, tag, event), data),
        }
    }

    #[inline(never)]
    fn home_step_of_any(
        &mut self,
        block: Block,
        number: u64,
        step: (DirState, Tag, HomeEvent),
        data: Option<&[u64; BLOCK_WORDS]>,
    ) -> bool {
        self.home_step_at::<false>(block, number, step, data)
    }

    #[inline(always)]
    fn home_step_at<const UNROLLED: bool>(
        &mut self,
        block: Block,
        number: u64,
        (state, tag, event): (DirState, Tag, HomeEvent),
        data: Option<&[u64; BLOCK_WORDS]>,
    ) -> bool {
        match stache::home_step(state, tag, event) {
            Ok((_, _, actions)) if actions.is_defer() => {
                self.defer(block, event);
                false
            }
            Ok((next, _, actions)) => {
                if next != state {
                    self.set_home_state(number, next);
                }
                self.perform::<UNROLLED>(block, true, &actions, data)
            }
            Err(violation) => self.violation(block, &violation),
        }
    }

    /// Raises the tags of a home page's blocks that nobody has used; or notes that node 0 has had them since before this node existed.
    #[cold]
    fn first_touch(&mut self, block: Block) {
        let mut each = self.space.block_of(block.addr() & !(PAGE_BYTES - 1));
        let began_away = self.began_at_node_0(each.addr());
        let held = DirState::Exclusive(self.manager());
        for _ in 0..PAGE_BYTES / self.space.block_bytes(block.addr()) {
            let number = self.space.number(each);
            let idle = self.coherence.stache.directory.is_idle(number);
            if idle && self.space.tag(each) == Some(Tag::Invalid) {
                if began_away {
                    self.set_home_state(number, held);
                } else {
                    self.space.set_tag(each, Tag::Writable);
                }
            }
            match self.space.after(each) {
                Some(next) => each = next,
                None => return,
            }
        }
    }

    /// Steps an event at a node that is not the home.
    fn cache_event(&mut self, block: Block, event: CacheEvent, data: Option<&[u64; BLOCK_WORDS]>) {
        let state = match self.coherence.stache.outstanding(block) {
            Some(state) => Some(state),
            None => CacheState::from_tag(self.tag_of(block)),
        };
        let Some(state) = state else {
            self.fail(format_args!("protocol error: block {:#x} is Busy without a miss", block.addr()))
        };
        #[cfg(any(feature = "planted", test))]
        let state = self.planted_state(block, state, event);
        macro_rules! step {
            ($state:expr, $event:expr) => {
                self.cache_step_at::<true>(block, $state, $event, data)
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
            _ => self.cache_step_of_any(block, state, event, data),
        }
    }

    #[inline(never)]
    fn cache_step_of_any(
        &mut self,
        block: Block,
        state: CacheState,
        event: CacheEvent,
        data: Option<&[u64; BLOCK_WORDS]>,
    ) {
        self.cache_step_at::<false>(block, state, event, data);
    }

    #[inline(always)]
    fn cache_step_at<const UNROLLED: bool>(
        &mut self,
        block: Block,
        state: CacheState,
        event: CacheEvent,
        data: Option<&[u64; BLOCK_WORDS]>,
    ) {
        match stache::cache_step(state, event) {
            Ok((next, actions)) => {
                if (state.is_pending() || next.is_pending()) && !self.coherence.stache.note(block, next) {
                    self.fail(format_args!("protocol error: too many outstanding misses"));
                }
                self.perform::<UNROLLED>(block, false, &actions, data);
            }
            Err(violation) => self.violation(block, &violation),
        }
    }

    #[cold]
    fn violation(&self, block: Block, violation: &Violation) -> ! {
        self.fail(format_args!("protocol error at block {:#x}: {}: {violation:?}", block.addr(), violation.what()))
    }

    /// Performs a step's actions in order; true when deferred events must be stepped next. `UNROLLED`: for actions that the compiler knows.
    #[inline(always)]
    fn perform<const UNROLLED: bool>(
        &mut self,
        block: Block,
        at_home: bool,
        actions: &Actions,
        data: Option<&[u64; BLOCK_WORDS]>,
    ) -> bool {
        let list = actions.as_slice();
        let mut replay = false;
        if UNROLLED {
            const { assert!(MAX_ACTIONS == 4) }
            for_each_of_four!(list, |action| replay |= self.act(block, at_home, action, actions, data));
        } else {
            for &action in list {
                replay |= self.act(block, at_home, action, actions, data);
            }
        }
        replay
    }

    /// Performs one action of a step; true when deferred events must be stepped next.
    #[inline(always)]
    fn act(
        &mut self,
        block: Block,
        at_home: bool,
        action: Action,
        #[cfg_attr(not(any(feature = "planted", test)), expect(unused_variables))] actions: &Actions,
        data: Option<&[u64; BLOCK_WORDS]>,
    ) -> bool {
        #[cfg(any(feature = "planted", test))]
        if self.planted_action(block, at_home, action, actions, data) {
            return false;
        }
        match action {
            Action::CopyIn => match data {
                Some(data) => {
                    self.copy_in(block, data);
                    instruments::stamp(&self.context, Step::Copied);
                }
                None => self.fail(format_args!("protocol error: no data for block {:#x}", block.addr())),
            },
            Action::SetTag(tag) => {
                self.set_tag(block, tag);
                instruments::stamp(&self.context, Step::Tagged);
            }
            Action::Send(to, msg) => self.send_protocol(to, block, msg),
            Action::SendHome(msg) => {
                let home = self.home_of(block);
                self.send_protocol(home, block, msg);
            }
            Action::Invalidate(nodes) => {
                for to in nodes.iter() {
                    self.send_protocol(to, block, Msg::Invalidate);
                }
            }
            Action::Resume => {
                self.grant(block);
                if at_home {
                    self.coherence.stache.note_served(block);
                }
            }
            Action::Replay => return true,
            Action::Defer => {}
        }
        false
    }

    #[inline]
    fn send_protocol(&mut self, to: NodeId, block: Block, msg: Msg) {
        if msg == Msg::WriteBack {
            self.count(Counter::WriteBacks);
        }
        self.send_block(to, block, msg.byte().into(), msg.carries_data());
    }

    /// Steps deferred events of all blocks that are neither busy nor pinned, oldest first.
    pub(super) fn stache_replay(&mut self) {
        while let Some(block) = self.next_replayable() {
            match self.coherence.stache.deferred.pop(block.addr()) {
                Some(event) => self.home_step(block, event, None),
                None => return,
            };
        }
    }

    /// Whether requests wait because their block is pinned.
    pub(super) fn stache_has_deferred(&self) -> bool {
        self.coherence.stache.deferred.blocks().any(|addr| self.coherence.is_pinned(Block::of(addr)))
    }

    fn next_replayable(&self) -> Option<Block> {
        self.coherence.stache.deferred.blocks().map(Block::of).find(|&block| {
            let state = self.coherence.stache.directory.get(self.space.number(block));
            !self.coherence.is_pinned(block) && state.is_ok_and(|state| !state.is_busy())
        })
    }
}
