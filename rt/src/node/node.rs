//! A node of a run of several: what it consists of.
//!
//! Input: a region, a number, and where its memory lies. Output: [`Node`]; what it does stands in the other files of the folder, one subject each.
//!
//! A [`Node`] knows its copy of the segment, its tags and its rings by address, so that tests run several in one process.

use crate::kernel::own_memory::{KernelMemory, KernelQueue, Slice};
use crate::kernel::sys;
use crate::links::links::Links;
use crate::links::wait_clock::WaitClock;
use crate::memory::region::Region;
use crate::memory::tags::Space;
use crate::node::arenas::Arenas;
use crate::node::disturbance::Disturbance;
use crate::node::hints::Hints;
use crate::node::spinning::Spinning;
use crate::sync::state::Sync;
use crate::transport::message::Message;
use blizzard_contract::Counter;
use blizzard_protocol::engine::access::Engine;
use blizzard_protocol::ids::NodeId;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;

/// One node of a run of several.
pub struct Node {
    pub links: Links,
    pub engine: Engine<KernelMemory>,
    pub arenas: Arenas,
    pub sync: Sync,
    /// By arena: the first address that was never handed out, as far as this node knows.
    pub handed_out: Slice<u64>,
    pub clock: WaitClock,
    pub disturbance: Disturbance,
    pub spinning: Spinning,
    pub hints: Hints,
    /// The answer that [`Node::call`] waits for: its kind, who sends it, and its key.
    pub awaited: Option<(u16, NodeId, u64)>,
    pub answer: Option<Message>,
    pub requests: u64,
    /// Messages of `tempest.h` that came before the program had started that interface.
    pub early: KernelQueue<Message>,
}

impl Deref for Node {
    type Target = Links;

    #[inline(always)]
    fn deref(&self) -> &Links {
        &self.links
    }
}

impl DerefMut for Node {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Node {
    /// Node `me` of the run.
    ///
    /// # Safety
    /// Nobody else is that node; region and space stay mapped; all tags of the space are Invalid and its memory zero.
    pub unsafe fn new(region: Region, me: NodeId, space: Space) -> sys::Result<Node> {
        // SAFETY: passed on from the caller.
        let links = unsafe { Links::new(region, me, space) }?;
        let arenas = Arenas::new(&links.homes, me)?;
        links.context.set_arenas(arenas.records());
        Ok(Node {
            arenas,
            handed_out: Slice::new(links.homes.arenas(), |_| 0)?,
            links,
            engine: Engine::new(region.protocol(), region.header())?,
            sync: Sync::new(region.header().nodes)?,
            clock: WaitClock::start(),
            disturbance: Disturbance::default(),
            spinning: Spinning::default(),
            hints: Hints::new()?,
            awaited: None,
            answer: None,
            requests: 0,
            early: KernelQueue::new(),
        })
    }

    /// A key that no request of this node had before.
    pub fn fresh_key(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Handler of all answers.
    pub fn on_reply(&mut self, from: NodeId, message: &Message) {
        if self.awaited == Some((message.handler, from, message.key)) {
            self.awaited = None;
            self.answer = Some(*message);
        } else {
            self.count(Counter::MessagesRejected);
        }
    }

    /// Process number of a node of the run.
    pub fn process_of(&self, node: NodeId) -> u32 {
        self.region.context(node).pid().load(Ordering::Relaxed)
    }

    /// [`Node::fold_times`] now and then, so that the counters of a node that dies are nearly right.
    pub fn fold_times_if_due(&mut self) {
        if self.clock.is_due() {
            self.fold_times();
        }
    }

    /// Converts the times for whoever reads the counters.
    pub fn fold_times(&mut self) {
        self.clock.fold(&self.links.context);
    }
}
