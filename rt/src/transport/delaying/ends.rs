//! The ends of the network of tests, as the interface wants them.
//!
//! Input: messages, the region's context pages. Output: [`Ends`] of a pair, [`Own`] of a node. All nodes run on one thread, one at a time: so nobody is ever unsure,
//! and a doorbell is set when its owner goes on ([`crate::transport::delaying::schedule`]).

use crate::memory::region::{ContextPage, Region};
use crate::transport::delaying::network::{self, SharedNetwork};
use crate::transport::interface::{Head, PeerState, Station, Urgency, Wire};
use crate::transport::message::{Message, Traffic};
use blizzard_contract::activity;
use blizzard_protocol::ids::{Data, NodeId};
use core::sync::atomic::Ordering;

/// The wires of a test that has made a network.
pub fn is_wanted() -> bool {
    network::current().is_some()
}

/// One node's end.
pub struct Ends {
    network: SharedNetwork,
    me: NodeId,
    other: NodeId,
    sent: u32,
    taken: u32,
    context: ContextPage,
}

impl Ends {
    /// The end of node `me`.
    ///
    /// # Safety
    /// Both are nodes of the region, nobody else has this end, and the region stays mapped.
    pub unsafe fn open(region: &Region, me: NodeId, other: NodeId) -> Ends {
        let network = network::current().expect("wanted");
        Ends { network, me, other, sent: 0, taken: 0, context: region.context(other) }
    }
}

impl Wire for Ends {
    fn send(&mut self, traffic: Traffic, incarnation: u32, head: Head, data: Option<&Data>) -> bool {
        let mut message = Message { data: data.copied().unwrap_or_default(), ..Message::default() };
        message.set_head(incarnation, &head);
        let sent = self.network.lock().send(self.me, self.other, traffic, message);
        self.sent = self.sent.wrapping_add(sent.into());
        sent
    }

    fn is_ready(&self) -> bool {
        self.network.lock().is_ready(self.other, self.me)
    }

    fn receive_into(&mut self, message: &mut Message) -> bool {
        let Some(got) = self.network.lock().receive(self.other, self.me) else { return false };
        let data = if got.length == 0 { message.data } else { got.data };
        *message = Message { data, ..got };
        self.taken = self.taken.wrapping_add(1);
        true
    }

    fn taken(&self) -> u32 {
        self.taken
    }

    fn is_all_taken(&self, taken: u32) -> bool {
        taken == self.sent
    }

    fn announce(&self, kind: Urgency) -> bool {
        self.tell(kind);
        false
    }

    fn tell(&self, kind: Urgency) {
        self.network.lock().ring(self.me, self.other, kind);
    }

    fn state(&self) -> PeerState {
        let state = PeerState {
            doing: self.context.activity().load(Ordering::Relaxed),
            is_rung: self.context.poll().load(Ordering::Relaxed) != 0,
            beat: self.context.beat().load(Ordering::Relaxed),
            pid: std::process::id(),
            processor: self.context.processor().load(Ordering::Relaxed),
        };
        self.network.lock().seen(self.other, state)
    }

    /// It goes on anyway.
    fn call(&self) {}
}

/// A node's own context page.
pub struct Own(ContextPage);

impl Own {
    pub fn open(region: &Region, me: NodeId) -> Own {
        Own(region.context(me))
    }

    fn set_rung(&self, is_rung: bool) {
        self.0.poll().store(is_rung.into(), Ordering::Relaxed);
    }

    fn say(&self, activity: u32) {
        self.0.activity().store(activity, Ordering::Relaxed);
    }
}

impl Station for Own {
    fn fence(&self) {}

    fn begin_wait(&self) {
        self.say(activity::SPINNING);
    }

    fn end_wait(&self, any_ready: impl FnOnce() -> bool) {
        self.say(activity::RUNNING);
        if any_ready() {
            self.remind();
        }
    }

    fn silence(&self, any_ready: impl FnOnce() -> bool) {
        self.set_rung(any_ready());
    }

    fn enter_kernel(&self, any_ready: impl FnOnce() -> bool) -> bool {
        !any_ready()
    }

    fn sleep(&self, _any_ready: impl FnOnce() -> bool, _limit_ns: u64) {
        unreachable!("the schedule lets nodes rest");
    }

    fn is_rung(&self) -> bool {
        self.0.poll().load(Ordering::Relaxed) != 0
    }

    fn remind(&self) {
        self.set_rung(true);
    }

    fn answer(&self) {
        self.set_rung(false);
    }

    fn show_processor(&self, processor: u32) {
        self.0.processor().store(processor, Ordering::Relaxed);
    }

    fn beat(&self) {
        self.0.beat().fetch_add(1, Ordering::Relaxed);
    }
}
