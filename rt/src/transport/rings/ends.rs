//! The ends of the rings, as the interface wants them.
//!
//! Input: the region; messages. Output: [`Ends`] of what is between two nodes, [`Own`] of a node: its context page.

use crate::kernel::sys;
use crate::memory::region::{ContextPage, Region};
use crate::transport::interface::{Head, PeerState, Station, Urgency, Wire};
use crate::transport::message::{Message, Traffic};
use crate::transport::rings::doorbell::{Doorbell, Word};
use crate::transport::rings::link::Link;
use blizzard_contract::CALL_SIGNAL;
use blizzard_protocol::ids::{Data, NodeId};
use core::sync::atomic::{AtomicU32, Ordering};

/// All wires that no other transport wants.
pub const fn is_wanted() -> bool {
    true
}

/// Two rings, the shuttle, and the peer's context page.
pub struct Ends {
    link: Link,
    context: ContextPage,
}

impl Ends {
    /// The end of node `me`.
    ///
    /// # Safety
    /// Both are nodes of the region, nobody else has this end, and the region stays mapped.
    pub unsafe fn open(region: &Region, me: NodeId, other: NodeId) -> Ends {
        let is_first = me.index() < other.index();
        let slots = region.header().ring_slots;
        // SAFETY: the region's rings, each used by this node at the one end that is its own.
        let link = unsafe { Link::new(region.ring(me, other), region.ring(other, me), slots, is_first) };
        Ends { link, context: region.context(other) }
    }
}

impl Wire for Ends {
    #[inline(always)]
    fn send(&mut self, traffic: Traffic, incarnation: u32, head: Head, data: Option<&Data>) -> bool {
        match traffic {
            Traffic::Blocks => self.link.send_by_ring(incarnation, head, data),
            Traffic::Other => self.link.send(incarnation, head, data),
        }
    }

    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.link.is_ready()
    }

    #[inline(always)]
    fn receive_into(&mut self, message: &mut Message) -> bool {
        self.link.receive_into(message)
    }

    #[inline(always)]
    fn expect_to_send(&self, taken: &Message) {
        self.link.expect_to_send(taken);
    }

    #[inline(always)]
    fn taken(&self) -> u32 {
        self.link.taken()
    }

    #[inline(always)]
    fn is_all_taken(&self, taken: u32) -> bool {
        self.link.is_all_taken(taken)
    }

    fn is_sound(&self) -> bool {
        self.link.is_sound()
    }

    #[inline(always)]
    fn announce(&self, kind: Urgency) -> bool {
        doorbell_of(&self.context).announce(kind, || self.call())
    }

    #[inline(always)]
    fn tell(&self, kind: Urgency) {
        doorbell_of(&self.context).ring_behind_fence(kind, || self.call());
    }

    fn state(&self) -> PeerState {
        PeerState {
            doing: self.context.activity().load(Ordering::Relaxed),
            is_rung: self.context.poll().load(Ordering::Relaxed) != 0,
            beat: self.context.beat().load(Ordering::Relaxed),
            pid: self.context.pid().load(Ordering::Relaxed),
            processor: self.context.processor().load(Ordering::Relaxed),
        }
    }

    #[inline(always)]
    fn call(&self) {
        call(self.context.pid().load(Ordering::Relaxed));
    }

    fn interrupt(&self) {
        interrupt(&self.context);
    }
}

/// A node's own context page.
pub struct Own(ContextPage);

impl Own {
    pub fn open(region: &Region, me: NodeId) -> Own {
        Own(region.context(me))
    }
}

impl Station for Own {
    #[inline(always)]
    fn fence(&self) {
        AtomicU32::full_fence();
    }

    #[inline(always)]
    fn begin_wait(&self) {
        doorbell_of(&self.0).begin_wait();
    }

    #[inline(always)]
    fn end_wait(&self, any_ready: impl FnOnce() -> bool) {
        doorbell_of(&self.0).end_wait(any_ready);
    }

    #[inline(always)]
    fn silence(&self, any_ready: impl FnOnce() -> bool) {
        doorbell_of(&self.0).silence(any_ready);
    }

    #[inline(always)]
    fn enter_kernel(&self, any_ready: impl FnOnce() -> bool) -> bool {
        doorbell_of(&self.0).enter_kernel(any_ready)
    }

    #[inline(always)]
    fn sleep(&self, any_ready: impl FnOnce() -> bool, limit_ns: u64) {
        doorbell_of(&self.0).sleep(any_ready, limit_ns);
    }

    #[inline(always)]
    fn is_rung(&self) -> bool {
        self.0.poll().load(Ordering::Relaxed) != 0
    }

    #[inline(always)]
    fn remind(&self) {
        self.0.poll().store(1, Ordering::Relaxed);
    }

    fn hush(&self) {
        doorbell_of(&self.0).hush();
    }

    #[inline(always)]
    fn answer(&self) {
        doorbell_of(&self.0).answer();
    }

    fn show_processor(&self, processor: u32) {
        self.0.processor().store(processor, Ordering::Relaxed);
    }

    #[inline(always)]
    fn beat(&self) {
        let beat = self.0.beat();
        beat.store(beat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

fn doorbell_of(context: &ContextPage) -> Doorbell<'_, AtomicU32> {
    Doorbell { poll: context.poll(), state: context.activity() }
}

/// Tells a node of what was published.
pub fn wake(context: &ContextPage) {
    doorbell_of(context).ring(|| call(context.pid().load(Ordering::Relaxed)));
}

/// Interrupts a node that computes and has not answered its doorbell.
#[cold]
pub fn interrupt(context: &ContextPage) {
    doorbell_of(context).interrupt(|| call(context.pid().load(Ordering::Relaxed)));
}

/// Sends a node's process the signal that brings it out of the kernel.
#[cold]
fn call(pid: u32) {
    if pid != 0 {
        // Refused when the process is gone, which the launcher sees, or has become another user's: then it answers at its next poll.
        let _ = sys::tgkill(pid as i32, pid as i32, CALL_SIGNAL);
    }
}
