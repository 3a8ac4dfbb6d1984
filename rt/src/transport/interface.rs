//! What the runtime needs of a transport.
//!
//! Purpose: two traits. A [`Wire`] is one node's end of what is between it and one peer: send now or say that it is full, look, receive, tell the peer, see how the
//! peer does. A [`Station`] is what a node has once: its own doorbell, and sleep. Input and output: messages. Everything else is common to all transports and stands
//! above: queues for what does not fit, whose turn it is, when a peer is told, how long a node waits. Source: `uct` of UCX, whose interface and endpoint these are.
//!
//! # Who rings the doorbell
//!
//! A receiver says what it does ([`blizzard_contract::activity`]). A sender first publishes its message, then looks: a *running* receiver gets its doorbell set, so
//! that its next poll is taken; a *spinning* one looks anyway and gets nothing; a *sleeping* one gets the doorbell and is woken; one *in the kernel* the doorbell and,
//! once, the signal that brings it out. An *answer* to the receiver's own request ([`Urgency`]) only wakes a sleeper: who runs comes when it needs the answer.
//! A receiver that changes its state says so first and then looks at all wires. Both sides have a full fence between the two steps, so at least one of them sees
//! the other and no message is left lying.
//!
//! Fences are not in the way of a miss. A sender that finds a spinning receiver, or a running one that waits for the answer, believes it for the moment and is
//! *unsure* ([`Wire::announce`]). It looks again behind a fence ([`Wire::tell`]) when it has waited in vain for a while, or before it sleeps or leaves the
//! runtime; not at all if the peer's next message acknowledges everything ([`Wire::is_all_taken`]).
//!
//! **Invariants** of each transport
//! * Nothing here blocks, but [`Station::sleep`].
//! * Messages of one wire arrive whole, once and in the order of sending. Between wires there is no order.
//! * What [`Wire::send`] has refused has left no trace.
//! * A message in flight belongs to the transport: neither end keeps a reference into it.

use crate::transport::message::{Message, Traffic};
use blizzard_protocol::ids::Data;

/// Words of a message's line behind its first one, as they travel: see [`crate::transport::message`].
pub type Head = [u64; crate::transport::message::HEAD_WORDS];

/// Whether the receiver of a message must be told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It is to handle the message soon, whatever it does.
    Call,
    /// Answers its own request. Either it waits for the answer, or it needs it when it comes to the runtime next: only a sleeper is woken.
    Answer,
    /// Follows from a message that it sent, and may well be what it waits for. If it runs, it is told a moment later, unless it shows before that it has
    /// taken the message.
    Reply,
}

/// What a peer shows of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// See [`blizzard_contract::activity`].
    pub doing: u32,
    /// Its doorbell is set.
    pub is_rung: bool,
    /// Grows with each look at its wires.
    pub beat: u32,
    /// Its process; 0 before it runs.
    pub pid: u32,
    /// The processor that it was seen on last, plus 1; 0 if it has not said so. [`NO_PROCESSOR`]: a carrier that shares the nodes' stands in for it.
    pub processor: u32,
}

/// See [`PeerState::processor`].
pub const NO_PROCESSOR: u32 = u32::MAX;

/// One node's end of everything between it and one peer.
pub trait Wire {
    /// Sends now; false, and nothing has happened, when there is no room. `traffic` says what kind of message it is, which `head` says, too.
    fn send(&mut self, traffic: Traffic, incarnation: u32, head: Head, data: Option<&Data>) -> bool;

    /// Whether a message is there.
    fn is_ready(&self) -> bool;

    /// Copies the next message out; false when there is none. Data that does not travel stays what it was. The contents are whatever the peer wrote.
    fn receive_into(&mut self, message: &mut Message) -> bool;

    /// Such a message was taken out: what will be sent next may be prepared.
    fn expect_to_send(&self, _taken: &Message) {}

    /// Messages taken out so far, modulo 2^32.
    fn taken(&self) -> u32;

    /// Whether the peer has taken out everything, if it has said that it has taken so many messages (modulo 2^32).
    fn is_all_taken(&self, taken: u32) -> bool;

    /// Whether the peer can have written what is seen here.
    fn is_sound(&self) -> bool {
        true
    }

    /// Tells the peer of a message, if a look without a fence says that it must be told. True: nothing was done, and the sender is unsure.
    fn announce(&self, kind: Urgency) -> bool;

    /// Tells the peer of a message that was sent in front of a fence.
    fn tell(&self, kind: Urgency);

    /// How the peer does.
    fn state(&self) -> PeerState;

    /// Brings the peer out of the kernel, or out of code without polls.
    fn call(&self);

    /// The same for a peer that runs and has not answered its doorbell, once for each time that it was rung.
    fn interrupt(&self) {}
}

/// What a node has once, whoever its peers are.
pub trait Station {
    /// No load or store moves across it in either direction.
    fn fence(&self);

    /// This node looks at its wires by itself from here on.
    fn begin_wait(&self);

    /// It goes back to the program; its doorbell is set if anything is ready.
    fn end_wait(&self, any_ready: impl FnOnce() -> bool);

    /// It has handled messages while it said that it runs: clears its doorbell unless something is ready.
    fn silence(&self, any_ready: impl FnOnce() -> bool);

    /// It is about to make a system call that may wait. False, and it still runs, when anything is ready.
    fn enter_kernel(&self, any_ready: impl FnOnce() -> bool) -> bool;

    /// Waiting, it sleeps unless anything is ready: until it is told of a message, or for so long. It may wake early.
    fn sleep(&self, any_ready: impl FnOnce() -> bool, limit_ns: u64);

    /// Whether its doorbell is set.
    fn is_rung(&self) -> bool;

    /// Sets it, so that the next poll is taken.
    fn remind(&self);

    /// Sets it, and wants no signal for it.
    fn hush(&self) {
        self.remind();
    }

    /// Clears it; all wires must be looked at then.
    fn answer(&self);

    /// Shows that it looks at its wires.
    fn beat(&self);

    /// Shows which processor it runs on: see [`PeerState::processor`].
    fn show_processor(&self, processor: u32);
}
