//! Messages about blocks that overtake each other, for tests: rings never let them, but a protocol may promise to bear it.
//!
//! What arrives goes into a bag, and what is handled is drawn from the bag at random. Input: messages, in the order of the rings.
//! Output: the same messages, in another order; none stays when a node waits. For runs with blocks of 64 bytes, whose data is never in
//! parts.

use crate::node::access::deliver;
use crate::node::node::Node;
use crate::transport::Message;
use blizzard_protocol::ids::NodeId;
use std::vec::Vec;

/// The longest sleep of a node that has messages in its bag: nobody wakes it for them.
const NAP_NS: u64 = 20_000;

/// The messages that have arrived and not been handled.
pub struct Bag {
    messages: Vec<Message>,
    random: u64,
    overtaken: u64,
}

impl Bag {
    pub fn new(seed: u64) -> Bag {
        Bag { messages: Vec::new(), random: seed | 1, overtaken: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// How often a message was handled before an older one.
    pub fn overtaken(&self) -> u64 {
        self.overtaken
    }

    fn next_random(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize
    }

    fn draw(&mut self) -> Option<Message> {
        let at = self.next_random().checked_rem(self.messages.len())?;
        self.overtaken += u64::from(at != 0);
        Some(self.messages.remove(at))
    }
}

impl Node {
    /// Puts a message into the bag; as often as not, one is drawn.
    pub fn put_into_bag(&mut self, message: &Message) {
        let Some(bag) = &mut self.bag else { return };
        bag.messages.push(*message);
        if bag.next_random().is_multiple_of(2) {
            self.deliver_from_bag();
        }
    }

    /// Handles a message from the bag, if there is any.
    pub fn deliver_from_bag(&mut self) {
        if let Some(message) = self.bag.as_mut().and_then(Bag::draw)
            && let Some(from) = NodeId::new(message.source.into())
        {
            deliver(self, from, &message);
        }
    }

    /// The longest sleep: nobody wakes a node for what is in its bag.
    pub fn longest_sleep(&self, without: u64) -> u64 {
        if self.bag.as_ref().is_some_and(|bag| !bag.is_empty()) { NAP_NS } else { without }
    }
}
