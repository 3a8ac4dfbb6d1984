//! The shuttle: one slot between two nodes, which they write in turn.
//!
//! Purpose: a request and its answer without the cost of a ring. In a ring each message takes two transfers of a cache line: its line is at the
//! receiver, who read it a lap ago or waits for it, so the sender must fetch it before it can write, and the receiver must fetch it back.
//! The shuttle is written by the very node that has just read it, whose cache has it: one transfer for each message. Input of
//! [`Shuttle::send`] and output of [`Shuttle::receive_into`]: a [`Message`], as in a [ring](crate::transport::rings::ring).
//!
//! ```text
//! head line   sequence number (u32), header        written by both, in turn; the sequence number last
//! data line   data of one block, when there is any
//! ```
//!
//! The two lines are neighbours, because processors fetch both of 128 bytes when one is wanted.
//!
//! The sequence number is 0 at first. The node with the lower number writes the odd ones, the other one the even ones; so whoever has read a number may
//! write the next one, and nobody else may.
//! **Invariants**: a node writes the slot only when it has taken the message out that was there; numbers only grow.

use crate::transport::interface::Head;
use crate::transport::message::{HEAD_WORDS, LINE_BYTES, Message};
use crate::transport::rings::ring::{RingMemory, load_head, store_head};
use blizzard_protocol::ids::Data;
use core::sync::atomic::Ordering;

/// Where the two lines are: in front of the slots of the ring from the first node to the other, see [`crate::transport::rings::ring`].
pub const HEAD_LINE: u64 = 128;
const DATA_LINE: u64 = HEAD_LINE + LINE_BYTES;

/// One node's end.
pub struct Shuttle<M> {
    memory: M,
    /// Parity of the numbers that this end writes.
    own: u32,
    /// The number that the slot had when this end wrote or read it last.
    seen: u32,
}

impl<M: RingMemory> Shuttle<M> {
    /// An end over fresh (zeroed) memory; one of the two ends is the first.
    pub fn over(memory: M, is_first: bool) -> Shuttle<M> {
        Shuttle { memory, own: is_first.into(), seen: 0 }
    }

    /// Whether it is this end's turn to write.
    #[inline]
    pub fn may_send(&self) -> bool {
        self.seen & 1 != self.own
    }

    /// Writes and publishes a message; only when [`Shuttle::may_send`].
    #[inline(always)]
    pub fn send(&mut self, incarnation: u32, head: Head, data: Option<&Data>) {
        if let Some(data) = data {
            for (word, &value) in (0..).zip(data) {
                self.memory.store_u64(DATA_LINE + 8 * word, value, Ordering::Relaxed);
            }
            self.memory.demote(DATA_LINE);
        }
        self.seen = self.seen.wrapping_add(1);
        store_head(&self.memory, HEAD_LINE, incarnation, head, self.seen);
        self.memory.demote(HEAD_LINE);
    }

    /// Whether a message is there.
    #[inline]
    pub fn is_ready(&self) -> bool {
        !self.may_send() && self.number() == self.seen.wrapping_add(1)
    }

    /// Whether the number in the slot is one that the other end can have written.
    pub fn is_sound(&self) -> bool {
        self.number() == self.seen || self.is_ready()
    }

    #[inline]
    fn number(&self) -> u32 {
        self.memory.load_u32(HEAD_LINE, Ordering::Acquire)
    }

    /// How many messages went the other way before the one that is ready, modulo 2^32.
    #[inline]
    pub fn order(&self) -> u32 {
        self.memory.load_u64(HEAD_LINE + 8 * HEAD_WORDS as u64, Ordering::Relaxed) as u32
    }

    /// Copies the message out that is ready; from then on it is this end's turn. The contents are whatever the peer wrote.
    #[inline]
    pub fn receive_into(&mut self, message: &mut Message) {
        load_head(&self.memory, HEAD_LINE, message);
        if message.length != 0 {
            for (word, value) in (0..).zip(&mut message.data) {
                *value = self.memory.load_u64(DATA_LINE + 8 * word, Ordering::Relaxed);
            }
        }
        self.seen = self.seen.wrapping_add(1);
    }
}
