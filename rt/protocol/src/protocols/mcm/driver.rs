//! The M-Machine's protocol on one node: its state, and the performance of its actions.
//!
//! Input: misses and messages from the engine. Output: tags, data and messages.
//!
//! **Rules and how they are kept.**
//! * *The event table* ([`EventTable`]) has an entry for each block with something outstanding or left to do. Its jobs
//!   ([`Bits::has_job`]) are served at the next entry into the runtime, never for a pinned block.
//! * *A refused request pauses before it is sent again*: see [`Pause`]. An invalidation that comes with it is answered at once.
//! * *An invalidation waits for the answer to a request that is outstanding*, and its home for this node. If the access in progress does not wait for that
//!   answer, too, this node looks for it at every poll, because nobody rings for answers, and waits for it before a system call.
//! * *The home's own program* has no event table; its refused access is stepped again after each event of that block.
//! * *Untouched pages.* An Unshared entry means that the home's tag is Writable, but tags start Invalid everywhere. See [`first_touch`].

use crate::ids::{Block, Data, NodeId};
use crate::port::{BlockSite, Port};
use crate::protocol::env::Env;
use crate::protocol::messages::{Incoming, reject};
use crate::protocol::pins::Pins;
use crate::protocol::seam::{Idled, PREFETCHES, Protocol, first_touch};
use crate::protocols::mcm::directory::{Entry, HomeState};
use crate::protocols::mcm::steps;
use crate::protocols::mcm::vocabulary::{Action, Actions, Bits, HomeEvent, Msg, NodeEvent, Violation};
use crate::storage::{Queue, Storage, Table};
use crate::tag::Tag;
use blizzard_contract::{self as contract, Counter};

/// The protocol's state on one node.
pub struct Mcm<M: Storage> {
    /// One entry per block of the segment; used for those whose home this node is.
    pub(super) directory: M::Table<Entry>,
    events: EventTable<M>,
    /// The access in progress that waits for a block; `true`: a store.
    waiting: Option<(Block, bool)>,
    /// It waits for a block of this home, and was refused.
    refused: bool,
    pause: Pause,
}

/// The software event table: each word is a block's address and, in the bits that are zero in it, the block's state [`Bits`].
struct EventTable<M: Storage>(Queue<u64, M>);

const _: () = assert!(Bits::MASK < contract::BLOCK_BYTES as u8);

impl<M: Storage> EventTable<M> {
    fn entries(&self) -> impl Iterator<Item = (Block, Bits)> {
        self.0.iter().map(|word| (Block::of(word), Bits::from_byte(word as u8)))
    }

    fn bits(&self, block: Block) -> Bits {
        self.entries().find(|&(each, _)| each == block).map_or(Bits::NONE, |(_, bits)| bits)
    }

    /// Fails only when there is no memory for a larger table.
    fn set(&mut self, block: Block, bits: Bits) -> Result<(), M::Error> {
        let word = block.addr() | u64::from(bits.byte());
        let place = self.entries().position(|(each, _)| each == block);
        match (place, bits.is_empty()) {
            (None, true) => Ok(()),
            (None, false) => self.0.push(word),
            (Some(at), false) => {
                self.0.set(at as u64, word);
                Ok(())
            }
            (Some(at), true) => {
                if let Some(first) = self.0.get(0) {
                    self.0.set(at as u64, first);
                }
                self.0.pop();
                Ok(())
            }
        }
    }
}

/// How long a refused request waits: a number of looks at the rings that doubles with each refusal, or a nap. The reason of a refusal
/// is that others exchange messages about the block; asking again at once would only cost the home time for these.
#[derive(Clone, Copy)]
struct Pause {
    looks: u32,
    limit: u32,
}

impl Pause {
    const START: Pause = Pause { looks: 0, limit: 1 };
    /// 1024 looks with a pause of 24 ns each: about as long as a page of misses.
    const MOST_LOOKS: u32 = 1024;
    /// Longest sleep of a node that has something to send again.
    const NAP_NS: u64 = 200_000;

    fn refused(&mut self) {
        *self = Pause { looks: 0, limit: (self.limit * 2).min(Pause::MOST_LOOKS) };
    }

    /// More looks, in vain; true when it is time to ask again.
    fn is_over(&mut self, idled: Idled) -> bool {
        self.looks += idled.looks;
        let over = idled.slept || self.looks >= self.limit;
        if over {
            self.looks = 0;
        }
        over
    }
}

impl<M: Storage> Protocol<M> for Mcm<M> {
    fn new(blocks: u64, _nodes: u32) -> Result<Mcm<M>, M::Error> {
        Ok(Mcm {
            directory: M::table(blocks)?,
            events: EventTable(Queue::new()),
            waiting: None,
            refused: false,
            pause: Pause::START,
        })
    }

    fn miss<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, store: bool) {
        self.waiting = Some((site.block, store));
        self.pause = Pause::START;
        if site.home == env.port.me() {
            self.home_event(env, site, if store { HomeEvent::LocalStore } else { HomeEvent::LocalLoad }, None);
        } else {
            self.node_event(env, site, if store { NodeEvent::Store } else { NodeEvent::Load }, None);
        }
    }

    fn message<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, message: &Incoming<'_>) {
        let Some(msg) = Msg::from_byte(message.kind) else { return reject(env.port) };
        #[cfg(feature = "planted")]
        if self.planted_message(env, site, msg, message.from) {
            return;
        }
        if let Some(event) = HomeEvent::from_msg(msg, message.from) {
            self.home_event(env, site, event, message.data);
            if self.refused && self.waiting.is_some_and(|(each, _)| each == site.block) {
                self.ask_own_home(env);
            }
        } else if let Some(event) = NodeEvent::from_msg(msg) {
            match msg {
                Msg::Invalidate => env.port.count(Counter::InvalidationsReceived),
                Msg::NackReadOnly | Msg::NackExclusive => self.pause.refused(),
                _ => {}
            }
            self.node_event(env, site, event, message.data);
            let bits = self.events.bits(site.block);
            if bits.has_job() && bits.any(Bits::I) && !env.is_pinned(site.block) {
                self.node_event(env, site, NodeEvent::Serve, None);
            }
        }
    }

    #[inline]
    fn is_at_rest(&self) -> bool {
        !self.refused && self.events.0.is_empty()
    }

    /// Serves all jobs of blocks that are not pinned.
    fn resume<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
        loop {
            let is_due = |&(block, bits): &(Block, Bits)| bits.has_job() && !env.is_pinned(block);
            let Some((block, _)) = self.events.entries().find(is_due) else { break };
            let site = env.site(block.addr());
            self.node_event(env, &site, NodeEvent::Serve, None);
        }
        if self.refused {
            self.ask_own_home(env);
        }
    }

    fn has_put_off_work(&self, _pins: &Pins) -> bool {
        self.has_jobs() || self.owes_answer()
    }

    fn evict<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite) {
        self.node_event(env, site, NodeEvent::Evict, None);
    }

    fn is_outstanding(&self, block: Block) -> bool {
        !self.events.bits(block).is_empty()
    }

    fn has_outstanding(&self) -> bool {
        !self.events.0.is_empty()
    }

    /// The protocol knows no request of the home's own program that nobody waits for.
    fn is_worth_asking(&self, port: &impl Port, site: &BlockSite) -> bool {
        site.home != port.me()
    }

    fn may_ask(&self) -> bool {
        self.events.0.len() < PREFETCHES as u64
    }

    fn ask<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, store: bool) {
        self.node_event(env, site, if store { NodeEvent::Store } else { NodeEvent::Load }, None);
    }

    fn owes_answer(&self) -> bool {
        self.events.entries().any(|(_, bits)| bits.any(Bits::I) && bits.is_pending())
    }

    fn patience(&self) -> u32 {
        let Pause { looks, limit } = self.pause;
        if self.has_jobs() { limit.saturating_sub(looks) } else { u32::MAX }
    }

    fn idle<P: Port>(&mut self, env: &mut Env<'_, M, P>, idled: Idled) {
        if self.has_jobs() && self.pause.is_over(idled) {
            self.resume(env);
        }
    }

    fn longest_sleep(&self) -> u64 {
        if self.has_jobs() { Pause::NAP_NS } else { u64::MAX }
    }

    fn is_unshared(&self, number: u64) -> bool {
        self.directory.get(number) == Entry::UNSHARED
    }

    fn begin_away<P: Port>(&mut self, _env: &mut Env<'_, M, P>, number: u64, holder: NodeId) {
        self.directory.set(number, Entry::encode(HomeState::Exclusive(holder)));
    }
}

impl<M: Storage> Mcm<M> {
    /// Whether anything is to be done without a message that causes it.
    fn has_jobs(&self) -> bool {
        self.refused || self.events.entries().any(|(_, bits)| bits.has_job())
    }

    /// Steps the home's own refused access again.
    fn ask_own_home<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
        self.refused = false;
        if let Some((block, store)) = self.waiting {
            let site = env.site(block.addr());
            self.home_event(env, &site, if store { HomeEvent::LocalStore } else { HomeEvent::LocalLoad }, None);
        }
    }

    pub(super) fn home_event<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        event: HomeEvent,
        data: Option<&Data>,
    ) {
        let number = env.port.number(site.block);
        let mut entry = self.directory.get(number);
        if entry == Entry::UNSHARED && env.port.tag(site.block) == Some(Tag::Invalid) {
            first_touch(self, env, site);
            entry = self.directory.get(number);
        }
        let tag = env.tag(site.block);
        #[cfg(feature = "planted")]
        let tag = Self::planted_home_tag(env.port, entry, tag);
        match steps::home_step(entry, tag, event) {
            Ok((next, actions)) => {
                self.directory.set(number, next);
                self.perform(env, site, &actions, data);
            }
            Err(why) => violation(env.port, site, &why),
        }
    }

    fn node_event<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        event: NodeEvent,
        data: Option<&Data>,
    ) {
        let bits = self.events.bits(site.block);
        let tag = env.tag(site.block);
        #[cfg(feature = "planted")]
        Self::planted_node_event(env.port, site.block, bits, tag, event);
        match steps::node_step(bits, tag, event) {
            Ok((next, actions)) => {
                if let Err(e) = self.events.set(site.block, next) {
                    env.port.fail(format_args!("no memory for the table of outstanding blocks: {e}"));
                }
                self.perform(env, site, &actions, data);
            }
            Err(why) => violation(env.port, site, &why),
        }
    }

    /// Performs a step's actions in order.
    fn perform<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, actions: &Actions, data: Option<&Data>) {
        for &action in actions.as_slice() {
            #[cfg(feature = "planted")]
            if self.planted_action(env, site, action, actions, data) {
                continue;
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
                    if let Some((waiting, store)) = self.waiting
                        && waiting == site.block
                        && env.port.allows(site.block, store)
                    {
                        self.waiting = None;
                        env.grant(site.block);
                    }
                }
                Action::Refused => self.refused = true,
            }
        }
    }
}

pub(super) fn send<M: Storage, P: Port>(env: &mut Env<'_, M, P>, to: NodeId, site: &BlockSite, msg: Msg) {
    if matches!(msg, Msg::YankedFull | Msg::ReturnDirty) {
        env.port.count(Counter::WriteBacks);
    }
    env.send(to, site, msg.byte(), msg.carries_data());
}

#[cold]
fn violation(port: &impl Port, site: &BlockSite, violation: &Violation) -> ! {
    port.fail(format_args!("protocol error at block {:#x}: {}: {violation:?}", site.block.addr(), violation.what()))
}
