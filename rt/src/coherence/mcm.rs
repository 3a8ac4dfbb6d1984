//! The driver of [`protocol::mcm`](crate::protocol::mcm): its state on this node, and the performance of its actions.
//!
//! Input: misses and messages, from [`super`], which also states the boundary. Output: tags, data and messages.
//!
//! **Rules and how they are kept.**
//! * *The event table* ([`EventTable`]) has an entry for each block with something outstanding or left to do. Its jobs
//!   ([`Bits::has_job`]) are served at the next entry into the runtime, never for a pinned block.
//! * *A refused request pauses before it is sent again*: see [`Pause`]. An invalidation that comes with it is answered at once.
//! * *An invalidation waits for the answer to a request that is outstanding*, and its home for this node. If the access in progress does not wait for that
//!   answer, too, this node looks for it at every poll, because nobody rings for answers, and waits for it before a system call.
//! * *The home's own program* has no event table; its refused access is stepped again after each event of that block.
//! * *Untouched pages.* Tags start Invalid on every node, the home included, while an Unshared entry means that the home's tag is
//!   Writable. An Invalid tag beside an Unshared entry therefore means "never used": the home raises the tags of all such
//!   blocks of the page at the first event, without messages. Where node 0 had the page before this node was created
//!   (see [`crate::forks`]), it makes the entries Exclusive at node 0 instead.

#[cfg(any(feature = "planted", test))]
mod planted;

use super::stache::PREFETCHES;
use crate::buffer::{Queue, Table};
use crate::homes::PAGE_BYTES;
use crate::node::Node;
use crate::protocol::mcm::{self, Action, Actions, Bits, Entry, HomeEvent, HomeState, Msg, NodeEvent, Violation};
use crate::protocol::{NodeId, Tag};
use crate::sys;
use crate::tags::{BLOCK_WORDS, Block};
use crate::transport::{Idled, Message};
use blizzard_contract::{self as contract, Counter};

/// The protocol's state on one node.
pub struct Mcm {
    /// One entry per block of the segment; used for those whose home this node is.
    directory: Table<Entry>,
    events: EventTable,
    /// The access in progress that waits for a block; `true`: a store.
    waiting: Option<(Block, bool)>,
    /// It waits for a block of this home, and was refused.
    refused: bool,
    pause: Pause,
}

impl Mcm {
    /// The state of a node that has used nothing yet.
    pub fn new(segment_blocks: u64) -> sys::Result<Mcm> {
        Ok(Mcm {
            directory: Table::new(segment_blocks)?,
            events: EventTable(Queue::new()),
            waiting: None,
            refused: false,
            pause: Pause::START,
        })
    }

    /// Whether no event is under way.
    #[inline]
    pub(super) fn is_at_rest(&self) -> bool {
        !self.refused && self.events.0.is_empty()
    }
}

/// The software event table: each word is a block's address and, in the bits that are zero in it, the block's state [`Bits`].
struct EventTable(Queue<u64>);

const _: () = assert!(Bits::MASK < contract::BLOCK_BYTES as u8);

impl EventTable {
    fn entries(&self) -> impl Iterator<Item = (Block, Bits)> {
        (0..self.0.len()).filter_map(|at| self.0.get(at)).map(|word| (Block::of(word), Bits::from_byte(word as u8)))
    }

    fn bits(&self, block: Block) -> Bits {
        self.entries().find(|&(each, _)| each == block).map_or(Bits::NONE, |(_, bits)| bits)
    }

    /// Fails only when the kernel has no memory for a larger table.
    fn set(&mut self, block: Block, bits: Bits) -> sys::Result<()> {
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

impl Node {
    /// Whether the block has an entry in the event table: then it cannot be evicted.
    pub(super) fn mcm_is_outstanding(&self, block: Block) -> bool {
        !self.coherence.mcm.events.bits(block).is_empty()
    }

    /// Whether anything is outstanding or left to do.
    pub(super) fn mcm_has_outstanding(&self) -> bool {
        !self.coherence.mcm.events.0.is_empty()
    }

    /// Gives a copy back.
    pub(super) fn mcm_evict(&mut self, block: Block) {
        self.mcm_node_event(block, NodeEvent::Evict, None);
    }

    /// Whether one more block may be asked for without a wait.
    pub(super) fn mcm_may_prefetch(&self) -> bool {
        self.coherence.mcm.events.0.len() < PREFETCHES as u64
    }

    /// Asks for a block of another home that nobody waits for yet.
    pub(super) fn mcm_prefetch(&mut self, block: Block, store: bool) {
        self.mcm_node_event(block, if store { NodeEvent::Store } else { NodeEvent::Load }, None);
    }

    /// The access in progress misses.
    pub(super) fn mcm_miss(&mut self, block: Block, store: bool) {
        self.coherence.mcm.waiting = Some((block, store));
        self.coherence.mcm.pause = Pause::START;
        if self.home_of(block) == self.me {
            self.mcm_home_event(block, if store { HomeEvent::LocalStore } else { HomeEvent::LocalLoad }, None);
        } else {
            self.mcm_node_event(block, if store { NodeEvent::Store } else { NodeEvent::Load }, None);
        }
    }

    /// A validated protocol message, or one that was put aside.
    pub(super) fn mcm_message(&mut self, message: &Message, block: Block) {
        let (Some(msg), Some(from)) = (Msg::from_byte(message.handler as u8), NodeId::new(message.source.into()))
        else {
            return self.count(Counter::MessagesRejected);
        };
        #[cfg(any(feature = "planted", test))]
        if self.planted_mcm_message(block, msg, from) {
            return;
        }
        if let Some(event) = HomeEvent::from_msg(msg, from) {
            self.mcm_home_event(block, event, Some(&message.data));
            if self.coherence.mcm.refused && self.coherence.mcm.waiting.is_some_and(|(each, _)| each == block) {
                self.mcm_ask_own_home();
            }
        } else if let Some(event) = NodeEvent::from_msg(msg) {
            match msg {
                Msg::Invalidate => self.count(Counter::InvalidationsReceived),
                Msg::NackReadOnly | Msg::NackExclusive => self.coherence.mcm.pause.refused(),
                _ => {}
            }
            self.mcm_node_event(block, event, Some(&message.data));
            let bits = self.coherence.mcm.events.bits(block);
            if bits.has_job() && bits.any(Bits::I) && !self.coherence.is_pinned(block) {
                self.mcm_node_event(block, NodeEvent::Serve, None);
            }
        }
    }

    /// Serves all jobs of blocks that are not pinned.
    pub(super) fn mcm_serve_jobs(&mut self) {
        loop {
            let mcm = &self.coherence.mcm;
            let is_due = |&(block, bits): &(Block, Bits)| bits.has_job() && !self.coherence.is_pinned(block);
            let Some((block, _)) = mcm.events.entries().find(is_due) else { break };
            self.mcm_node_event(block, NodeEvent::Serve, None);
        }
        if self.coherence.mcm.refused {
            self.mcm_ask_own_home();
        }
    }

    /// Whether anything is to be done without a message that causes it.
    pub(super) fn mcm_has_jobs(&self) -> bool {
        self.coherence.mcm.refused || self.coherence.mcm.events.entries().any(|(_, bits)| bits.has_job())
    }

    /// Whether a home waits for an answer that depends on what it says to a request of this node.
    pub(super) fn mcm_owes_answer(&self) -> bool {
        self.coherence.mcm.events.entries().any(|(_, bits)| bits.any(Bits::I) && bits.is_pending())
    }

    /// Looks until it is time to ask again.
    pub(super) fn mcm_patience(&self) -> u32 {
        let Pause { looks, limit } = self.coherence.mcm.pause;
        if self.mcm_has_jobs() { limit.saturating_sub(looks) } else { u32::MAX }
    }

    /// Nothing has arrived in that step.
    pub(super) fn mcm_idle(&mut self, idled: Idled) {
        if self.mcm_has_jobs() && self.coherence.mcm.pause.is_over(idled) {
            self.mcm_serve_jobs();
        }
        let nap = if self.mcm_has_jobs() { Pause::NAP_NS } else { u64::MAX };
        self.transport.limit_sleep(nap);
    }

    /// Steps the home's own refused access again.
    fn mcm_ask_own_home(&mut self) {
        self.coherence.mcm.refused = false;
        if let Some((block, store)) = self.coherence.mcm.waiting {
            self.mcm_home_event(block, if store { HomeEvent::LocalStore } else { HomeEvent::LocalLoad }, None);
        }
    }

    fn mcm_home_event(&mut self, block: Block, event: HomeEvent, data: Option<&[u64; BLOCK_WORDS]>) {
        let number = self.space.number(block);
        let mut entry = self.coherence.mcm.directory.get(number);
        if entry == Entry::UNSHARED && self.space.tag(block) == Some(Tag::Invalid) {
            self.mcm_first_touch(block);
            entry = self.coherence.mcm.directory.get(number);
        }
        let tag = self.tag_of(block);
        #[cfg(any(feature = "planted", test))]
        let tag = self.planted_mcm_tag(entry, tag);
        match mcm::home_step(entry, tag, event) {
            Ok((next, actions)) => {
                self.coherence.mcm.directory.set(number, next);
                self.mcm_perform(block, self.me, &actions, data);
            }
            Err(violation) => self.mcm_violation(block, &violation),
        }
    }

    /// Raises the tags of a home page's blocks that nobody has used; or notes that node 0 has had them since before this node existed.
    #[cold]
    fn mcm_first_touch(&mut self, block: Block) {
        let mut each = self.space.block_of(block.addr() & !(PAGE_BYTES - 1));
        let began_away = self.began_at_node_0(each.addr());
        let held = Entry::encode(HomeState::Exclusive(self.manager()));
        for _ in 0..PAGE_BYTES / self.space.block_bytes(block.addr()) {
            let number = self.space.number(each);
            let unshared = self.coherence.mcm.directory.get(number) == Entry::UNSHARED;
            if unshared && self.space.tag(each) == Some(Tag::Invalid) {
                if began_away {
                    self.coherence.mcm.directory.set(number, held);
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

    fn mcm_node_event(&mut self, block: Block, event: NodeEvent, data: Option<&[u64; BLOCK_WORDS]>) {
        let bits = self.coherence.mcm.events.bits(block);
        let tag = self.tag_of(block);
        #[cfg(any(feature = "planted", test))]
        self.planted_mcm_node(block, bits, tag, event);
        match mcm::node_step(bits, tag, event) {
            Ok((next, actions)) => {
                if let Err(e) = self.coherence.mcm.events.set(block, next) {
                    self.fail(format_args!("no memory for the table of outstanding blocks: {e}"));
                }
                let home = self.home_of(block);
                self.mcm_perform(block, home, &actions, data);
            }
            Err(violation) => self.mcm_violation(block, &violation),
        }
    }

    #[cold]
    fn mcm_violation(&self, block: Block, violation: &Violation) -> ! {
        self.fail(format_args!("protocol error at block {:#x}: {}: {violation:?}", block.addr(), violation.what()))
    }

    /// Performs a step's actions in order.
    fn mcm_perform(&mut self, block: Block, home: NodeId, actions: &Actions, data: Option<&[u64; BLOCK_WORDS]>) {
        for &action in actions.as_slice() {
            #[cfg(any(feature = "planted", test))]
            if self.planted_mcm_action(block, home, action, actions, data) {
                continue;
            }
            match action {
                Action::CopyIn => match data {
                    Some(data) => self.copy_in(block, data),
                    None => self.fail(format_args!("protocol error: no data for block {:#x}", block.addr())),
                },
                Action::SetTag(tag) => self.space.set_tag(block, tag),
                Action::Send(to, msg) => self.mcm_send(to, block, msg),
                Action::SendHome(msg) => self.mcm_send(home, block, msg),
                Action::Invalidate(nodes) => {
                    for to in nodes.iter() {
                        self.mcm_send(to, block, Msg::Invalidate);
                    }
                }
                Action::Resume => {
                    if let Some((waiting, store)) = self.coherence.mcm.waiting
                        && waiting == block
                        && self.space.allows(block, store)
                    {
                        self.coherence.mcm.waiting = None;
                        self.grant(block);
                    }
                }
                Action::Refused => self.coherence.mcm.refused = true,
            }
        }
    }

    fn mcm_send(&mut self, to: NodeId, block: Block, msg: Msg) {
        if matches!(msg, Msg::YankedFull | Msg::ReturnDirty) {
            self.count(Counter::WriteBacks);
        }
        self.send_block(to, block, msg.byte().into(), msg.carries_data());
    }
}
